//! The requests of the soak; each depends on its number alone.

use std::time::Duration;

use decode::AttentionKind;
use engine::decoding::{PRESET_NAMES, Registry, WeightKind};
use problems::{Split, Task, generate};
use serde_json::{Value, json};
use step::{Attention, LogitShift};

use super::KEYS;
use crate::fuzz::{drive, mutate::Mutator};
use crate::random::Random;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "/v1/diffusion/trace";
/// The endpoints that generate, whose requests the metrics count.
pub const GENERATING: [&str; 3] = [COMPLETIONS, CHAT, TRACE];
/// Most tokens of a valid request's choice.
const TOKENS: usize = 16;
/// A client that leaves does so within this time.
const PATIENCE: Duration = Duration::from_millis(120);
/// Prompts of valid requests.
const PROMPTS: usize = 40;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Valid, except that its decoder may not suit the model.
    Valid,
    /// A corpus body with mutations.
    Malformed,
    /// A value out of its range, a prompt that is too long, or a wrong model.
    Range,
    /// Cheap to send and dear to serve.
    Hostile,
    /// Not a generation.
    Other,
    /// Without a valid key, path or method.
    Stranger,
}

/// The moment at which the client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// After the whole answer.
    Stays,
    /// This long after sending the request, without reading.
    Leaves(Duration),
    /// After this many bytes of the answer.
    Reads(usize),
    /// Before this many bytes of the request's body are sent.
    Stops(usize),
}

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its kind.
    pub kind: Kind,
    /// Its method and path.
    pub target: (&'static str, &'static str),
    /// The name or the names of its decoder's parts.
    pub decoder: Vec<&'static str>,
    /// The key that it sends.
    pub key: &'static str,
    /// Its body.
    pub body: Vec<u8>,
    /// The moment at which its client leaves.
    pub manner: Manner,
}

impl Ask {
    /// True if the metrics count it: it is a generation, even if its key is unknown.
    pub fn is_counted(&self) -> bool {
        let (method, path) = self.target;
        method == "POST" && GENERATING.contains(&path)
    }
}

/// The source of requests.
#[derive(Debug)]
pub struct Asks {
    mutator: Mutator,
    prompts: Vec<String>,
    decoders: Vec<Vec<&'static str>>,
    seed: u64,
}

impl Asks {
    /// The requests of `seed`.
    pub fn new(seed: u64) -> Self {
        let each = PROMPTS / Task::ALL.len();
        let problems = Task::ALL.map(|task| generate(task, Split::Eval, 5, each));
        let prompts = problems.into_iter().flatten().map(|problem| problem.prompt);
        Self {
            mutator: Mutator::new(drive::corpus("request"), "null¦1e400¦[[[["),
            prompts: prompts.collect(),
            decoders: decoders(),
            seed,
        }
    }

    /// The request with this number.
    pub fn ask(&self, number: u64) -> Ask {
        let mut random = Random::new(self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number));
        let random = &mut random;
        let kind = match random.below(100) {
            0..64 => Kind::Valid,
            64..76 => Kind::Malformed,
            76..83 => Kind::Range,
            83..88 => Kind::Hostile,
            88..96 => Kind::Other,
            _ => Kind::Stranger,
        };
        let mut decoder = Vec::new();
        let mut key = KEYS[random.below(KEYS.len())].1;
        let mut target = ("POST", GENERATING[random.below(GENERATING.len())]);
        let body = match kind {
            Kind::Valid => {
                decoder = self.decoders[random.below(self.decoders.len())].clone();
                self.valid(target.1, &decoder, random).to_string().into_bytes()
            }
            Kind::Malformed => self.mutator.input(number),
            Kind::Range => self.out_of_range(target.1, random).to_string().into_bytes(),
            Kind::Hostile => {
                target.1 = COMPLETIONS;
                hostile(random).to_string().into_bytes()
            }
            Kind::Other => {
                let (method, path, body) = other(random);
                target = (method, path);
                body.into_bytes()
            }
            Kind::Stranger => {
                match random.below(3) {
                    0 => key = "nobody's",
                    1 => target = ("PUT", CHAT),
                    _ => target = ("POST", "/v1/embeddings"),
                }
                self.valid(CHAT, &[], random).to_string().into_bytes()
            }
        };
        let manner = manner(kind, body.len(), random);
        Ask { kind, target, decoder, key, body, manner }
    }

    /// Every decoder that valid requests name and that suits the weights of the demo model.
    pub fn suitable(&self) -> impl Iterator<Item = &Vec<&'static str>> {
        self.decoders.iter().filter(|decoder| suits(decoder))
    }

    /// A valid request to an endpoint.
    fn valid(&self, path: &str, decoder: &[&str], random: &mut Random) -> Value {
        let mut body = json!({
            "model": "demo",
            "max_tokens": 1 + random.below(TOKENS),
            "diffusion": match decoder {
                [] => json!({}),
                [preset] => json!({ "preset": preset }),
                parts => json!({"schedule": parts[0], "commit": parts[1], "cache": parts[2]}),
            },
        });
        let prompt = random.pick(&self.prompts.iter().map(String::as_str).collect::<Vec<_>>());
        let is_chat = path == CHAT || (path == TRACE && random.below(2) == 0);
        match is_chat {
            true => body["messages"] = json!([{"role": "user", "content": prompt}]),
            false => body["prompt"] = json!(prompt),
        }
        let is_trace = path == TRACE;
        for _ in 0..random.below(5) {
            option(&mut body, (is_chat, is_trace), random);
        }
        if !is_trace && random.below(2) == 0 {
            body["stream"] = json!(true);
            let continuous = random.below(4) == 0;
            let usage = json!({"include_usage": true, "continuous_usage_stats": continuous});
            body["stream_options"] = usage;
        }
        body
    }

    /// A request with one fault.
    fn out_of_range(&self, path: &str, random: &mut Random) -> Value {
        let mut body = self.valid(path, &[], random);
        let (field, value) = match random.below(12) {
            0 => ("temperature", json!(-1)),
            1 => ("top_p", json!(2)),
            2 => ("n", json!(129)),
            3 => ("max_tokens", json!(1_000_000)),
            4 => ("model", json!("other")),
            5 => ("seed", json!("x")),
            6 => ("stop", json!(vec!["a"; 65])),
            7 => ("prompt", json!("word ".repeat(3_000))),
            8 => ("logit_bias", json!({"99999": 1})),
            9 => ("diffusion", json!({"threshold": 7})),
            10 => ("priority", json!(1e30)),
            _ => ("diffusion", json!({"preset": "none such"})),
        };
        body[field] = value;
        body
    }
}

/// Every preset, and every schedule, commit rule and cache policy that go together.
fn decoders() -> Vec<Vec<&'static str>> {
    let registry = Registry::builtin();
    let mut all: Vec<Vec<&str>> = PRESET_NAMES.iter().map(|name| vec![*name]).collect();
    for schedule in registry.schedules() {
        for commit in registry.commits() {
            for cache in registry.caches() {
                if registry.goes(schedule, commit, cache) {
                    all.push(vec![schedule.name, commit.name, cache.name]);
                }
            }
        }
    }
    all
}

/// True if a decoder suits weights with full attention that were not trained to edit.
fn suits(decoder: &[&str]) -> bool {
    let full = AttentionKind::Full;
    let registry = Registry::builtin();
    let &[schedule, commit, cache] = decoder else {
        let weights = WeightKind {
            attention: Attention::Full,
            logit_shift: LogitShift::None,
            edits: false,
            drafts: false,
            masks: true,
        };
        return weights.presets().any(|preset| [preset.name] == decoder);
    };
    let [schedule, commit, cache] = [schedule, commit, cache];
    let schedules = registry.schedules().iter().filter(|info| info.name == schedule);
    let commits = registry.commits().iter().filter(|info| info.name == commit);
    let caches = registry.caches().iter().filter(|info| info.name == cache);
    commit != "edit"
        && schedules.map(|info| info.attention).all(|kinds| kinds.contains(&full))
        && commits.map(|info| info.requires.attention).all(|kinds| kinds.contains(&full))
        && caches.map(|info| info.attention).all(|kinds| kinds.contains(&full))
}

/// Sets a field to a valid value.
fn option(body: &mut Value, (is_chat, is_trace): (bool, bool), random: &mut Random) {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let grammar = "start: \"a\" s\ns: \"b\" | s s | /[0-9]+/";
    let choice = json!({"choice": ["yes", "no", "perhaps"]});
    let (field, value) = match random.below(14) {
        0 => ("temperature", json!(random.below(20) as f64 / 10.0)),
        1 => ("seed", json!(random.below(1_000))),
        2 => ("stop", json!(["e", " and"])),
        3 => ("priority", json!(random.below(5) as i64 - 2)),
        4 => ("top_k", json!(1 + random.below(50))),
        5 => ("frequency_penalty", json!(0.5)),
        6 => ("logit_bias", json!({"20": 2, "30": -100})),
        7 => ("skip_special_tokens", json!(false)),
        8 if !is_trace => ("n", json!(1 + random.below(3))),
        9 if !is_trace && is_chat => {
            body["top_logprobs"] = json!(random.below(4));
            ("logprobs", json!(true))
        }
        9 if !is_trace => ("logprobs", json!(random.below(4))),
        10 => ("regex", json!("[a-z]{1,6}( [a-z]{1,6})?")),
        11 => ("structured_outputs", choice),
        12 => ("response_format", format),
        13 => ("grammar", json!(grammar)),
        _ => ("return_token_ids", json!(true)),
    };
    // At most one grammar.
    let grammars = ["regex", "structured_outputs", "response_format", "grammar"];
    if grammars.contains(&field) && grammars.iter().any(|other| body.get(*other).is_some()) {
        return;
    }
    body[field] = value;
}

/// A request whose work must be bounded before it begins.
fn hostile(random: &mut Random) -> Value {
    let ambiguous = "start: s\ns: s s s s | s s s | s s | | /[^\"]/ | /[a-zA-Z ]/ | /[^,]/ | /./";
    let nested = "[".repeat(100) + &"]".repeat(100);
    let schema = json!({"type": "object", "properties": {"a": {"multipleOf": 0.0001}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let (field, value) = match random.below(9) {
        0 => ("regex", json!(".?".repeat(9_000))),
        1 => ("regex", json!("(|a)".repeat(4_000))),
        2 => ("regex", json!(".?".repeat(100 + random.below(300)))),
        3 => ("grammar", json!(ambiguous)),
        4 => ("prompt", json!("a b ".repeat(20_000))),
        5 => ("prompt", json!(vec!["a"; 9])),
        6 => ("stop", json!(vec!["\u{1F95A}".repeat(1_000); 64])),
        7 => ("metadata", serde_json::from_str(&nested).unwrap_or_default()),
        _ => ("response_format", format),
    };
    let mut body =
        json!({"model": "demo", "prompt": "a", "max_tokens": 8, "temperature": 1, "n": 3});
    body[field] = value;
    body
}

/// A request to another endpoint.
fn other(random: &mut Random) -> (&'static str, &'static str, String) {
    let body = match random.below(8) {
        0 => return ("GET", "/v1/models", String::new()),
        1 => return ("GET", "/health", String::new()),
        2 => return ("GET", "/metrics", String::new()),
        3 => return ("GET", "/v1/loads", String::new()),
        4 => return ("GET", "/tokenizer_info", String::new()),
        5 => {
            let tokens: Vec<usize> = (0..random.below(60)).map(|_| random.below(900)).collect();
            let body = json!({ "tokens": tokens });
            return ("POST", "/detokenize", body.to_string());
        }
        _ => json!({ "prompt": "Mia has é eggs. ".repeat(random.below(200)) }),
    };
    ("POST", "/tokenize", body.to_string())
}

/// The moment at which the client of a request with `length` bytes leaves; one of five leaves early.
fn manner(kind: Kind, length: usize, random: &mut Random) -> Manner {
    let may = matches!(kind, Kind::Valid | Kind::Hostile | Kind::Malformed);
    if !may || random.below(5) > 0 {
        return Manner::Stays;
    }
    match random.below(8) {
        0 => Manner::Stops(random.below(length.max(1))),
        1 | 2 => Manner::Leaves(Duration::ZERO),
        3..=5 => Manner::Leaves(PATIENCE.mul_f64(random.below(100) as f64 / 100.0)),
        _ => Manner::Reads(1 + random.below(1_500)),
    }
}
