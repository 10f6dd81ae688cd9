//! Five hundred simultaneous clients: a third disconnect early, a tenth read byte by byte.

use problems::{Split, Task, generate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use sim::SimConfig;

use crate::random::Random;
use crate::served::MODEL;

/// Number of clients.
pub const CLIENTS: usize = 500;
/// Number of different requests; several clients send each.
pub const REQUESTS: usize = 50;
/// Sockets on both ends of every connection, and some files.
const OPEN_FILES: u64 = 2 * CLIENTS as u64 + 200;
/// Events after which the last early clients disconnect.
const LATEST: usize = 24;
const TEMPERATURES: [f64; 3] = [0.0, 0.8, 1.2];
const BUDGETS: [usize; 8] = [32, 120, 60, 96, 48, 110, 80, 24];

/// A client's manner of reading its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Well,
    /// Closes its connection after this many events; with 0 it does not wait for the answer.
    Leaves(usize),
    /// Byte by byte.
    Slow,
}

/// A request for a stream.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path of the endpoint.
    pub path: &'static str,
    /// With `stream` and the usage in the last chunk.
    pub body: Value,
}

/// The manner of every client: a third disconnect, half of them before their first event; a tenth are
/// slow.
pub fn manners(seed: u64) -> Vec<Manner> {
    let mut random = Random::new(seed);
    let manner = |client: usize| match client {
        _ if client < CLIENTS / 6 => Manner::Leaves(0),
        _ if client < CLIENTS / 3 => Manner::Leaves(1 + random.below(LATEST)),
        _ if client < CLIENTS / 3 + CLIENTS / 10 => Manner::Slow,
        _ => Manner::Well,
    };
    let mut manners: Vec<Manner> = (0..CLIENTS).map(manner).collect();
    random.shuffle(&mut manners);
    manners
}

/// [`REQUESTS`] requests that differ in prompt, endpoint, length, sampling and decoder.
pub fn requests() -> Vec<Request> {
    let problems = Task::ALL.map(|task| generate(task, Split::Eval, 11, REQUESTS));
    let decoders = [
        json!({}),
        json!({"preset": "fast"}),
        json!({"schedule": "block_wise", "cache": "dual", "block_length": 16}),
        json!({"schedule": "asynclane", "cache": "snapshot"}),
        json!({"preset": "quality"}),
    ];
    let request = |index: usize| {
        let prompt = &problems[index % problems.len()][index].prompt;
        let mut body = json!({"model": MODEL, "max_tokens": BUDGETS[index % BUDGETS.len()],
            "temperature": TEMPERATURES[index % TEMPERATURES.len()], "seed": index,
            "ignore_eos": index.is_multiple_of(4), "stream": true,
            "stream_options": {"include_usage": true},
            "diffusion": decoders[index % decoders.len()]});
        let path = if index.is_multiple_of(2) {
            body["messages"] = json!([{"role": "user", "content": prompt}]);
            "/v1/chat/completions"
        } else {
            body["prompt"] = json!(prompt);
            "/v1/completions"
        };
        Request { path, body }
    };
    (0..REQUESTS).map(request).collect()
}

/// A simulated model with the vocabulary of the goldens' tokenizer.
pub fn model() -> SimConfig {
    let vocabulary = (6..842).collect();
    SimConfig {
        pages: 16_384,
        vocab_size: 842,
        max_positions: 1024,
        mask: 5,
        stop_token: 1,
        text_len: 40..160,
        period: None,
        words: vocabulary,
        ..SimConfig::default()
    }
}

/// Raises the limit of open files to the number of sockets on both sides. Panics if the system does
/// not allow it.
pub fn allow_sockets() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= OPEN_FILES) {
        return;
    }
    let current = Some(OPEN_FILES);
    let raised = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    raised.unwrap_or_else(|error| panic!("{OPEN_FILES} open files: {error}"));
}
