//! Requests that are cheap to send and would be dear to serve. While they run, the process's memory
//! stays near its start, and another client gets its answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::process::Server;
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
/// Allowed growth of resident memory.
const GROWTH_KIB: u64 = 300 << 10;
/// How much slower a build without optimization may be, with other tests beside it.
const FACTOR: u32 = if cfg!(debug_assertions) { 5 } else { 1 };
/// Time for the answer of another client.
const OTHERS: Duration = Duration::from_secs(1);
/// Time until a hostile request is refused.
const REFUSAL: Duration = Duration::from_secs(2);

/// A line of the process's status, in KiB.
fn memory(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(server.proc().join("status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    value
        .and_then(|value| value.parse().ok())
        .expect("a number of KiB")
}

/// Sets its flag when dropped, so that a failed attack ends the other client too.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One short request of another client; returns its time.
fn ask(client: Client) -> Duration {
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4, "ignore_eos": true});
    let begin = Instant::now();
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    begin.elapsed()
}

/// Runs `attack` beside another client; checks the memory and that client's times.
fn withstands(server: &Server, name: &str, attack: impl FnOnce(Client)) {
    let client = server.client();
    ask(client);
    let start = memory(server, "VmRSS");
    // Begins a new high-water mark.
    std::fs::write(server.proc().join("clear_refs"), "5").expect("the process is ours");
    let done = AtomicBool::new(false);
    let (answers, slowest) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut times = vec![ask(client)];
            while !done.load(Ordering::Relaxed) {
                times.push(ask(client));
            }
            (times.len(), times.into_iter().max().unwrap_or_default())
        });
        let sets = Sets(&done);
        attack(client);
        drop(sets);
        other.join().expect("the other client is answered")
    });
    let peak = memory(server, "VmHWM");
    println!("{name}: {start} KiB, at most {peak} KiB; {answers} answers, slowest {slowest:?}");
    assert!(
        peak <= start + GROWTH_KIB,
        "{name}: {start} KiB grew to {peak} KiB"
    );
    assert!(
        slowest < OTHERS * FACTOR,
        "{name}: the slowest of {answers} took {slowest:?}"
    );
}

/// Sends `body` and checks that it is refused as `code` of `param` in time.
fn refused(client: Client, body: &Value, (code, param): (&str, &str)) {
    let begin = Instant::now();
    let answer = client.post(COMPLETIONS, body);
    let time = begin.elapsed();
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.error();
    assert_eq!(error["code"], code, "{error:?}");
    assert_eq!(error["param"], param, "{error:?}");
    assert!(time < REFUSAL * FACTOR, "{error:?} took {time:?}");
}

/// Four long prompts whose senders hang up, then four that wait for the answer.
fn long_prompts(client: Client) {
    let body = json!({"model": "demo", "prompt": "a b ".repeat(3_900_000), "max_tokens": 4});
    for _ in 0..4 {
        drop(client.begin(COMPLETIONS, &body));
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| refused(client, &body, ("context_length_exceeded", "prompt")));
        }
    });
}

/// Stop strings for 1,024 sequences: too many bytes, then as many as are allowed.
fn stop_strings(client: Client) {
    let stops = vec!["\u{1F95A}".repeat(1024); 64];
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": 128, "max_tokens": 4,
        "stop": stops});
    refused(client, &body, ("invalid_value", "stop"));
    let stops = vec!["~".repeat(1024); 64];
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": 128, "max_tokens": 1,
        "stop": stops});
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Patterns whose automata grow without bound.
fn hostile_patterns(client: Client) {
    let patterns = [
        ".?".repeat(32_000),
        ".?".repeat(9_000),
        "(|a)".repeat(8_000),
    ];
    std::thread::scope(|scope| {
        for pattern in patterns.iter().chain(&patterns) {
            scope.spawn(move || {
                let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4,
                    "regex": pattern});
                refused(client, &body, ("invalid_value", "regex"));
            });
        }
    });
}

#[test]
fn a_pattern_that_compiles_does_not_hold_up_the_end() {
    let server = Server::start(&[]);
    let client = server.client();
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4,
        "regex": "[a-z]{1,40}( [a-z]{1,40}){1,40}"});
    let _asking: Vec<_> = (0..4).map(|_| client.begin(COMPLETIONS, &body)).collect();
    let begin = Instant::now();
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(begin.elapsed() < Duration::from_secs(5) * FACTOR);
}

#[test]
fn no_request_takes_the_memory_or_the_time_of_others() {
    let server = Server::start(&[]);
    withstands(&server, "long prompts", long_prompts);
    withstands(&server, "stop strings", stop_strings);
    withstands(&server, "hostile patterns", hostile_patterns);
}
