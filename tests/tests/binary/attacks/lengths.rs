//! Requests that are too long, for too many tokens or for too many sequences.

use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::process::{Server, patience};
use serde_json::json;

use super::{COMPLETIONS, REFUSAL, ask, hold, refused, withstands};

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

/// Stop strings for 1,024 sequences: too many bytes, then as many as are allowed, for as many sequences
/// as the queue surely has room for beside those of the other client.
fn stop_strings(client: Client) {
    let stops = vec!["\u{1F95A}".repeat(1024); 64];
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": 128, "max_tokens": 4,
        "stop": stops});
    refused(client, &body, ("invalid_value", "stop"));
    let stops = vec!["~".repeat(1024); 64];
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": 120, "max_tokens": 1,
        "stop": stops});
    client.json(COMPLETIONS, &body);
}

/// 1,024 sequences of 900 tokens each.
fn many_tokens(client: Client) {
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": 128, "max_tokens": 900,
        "ignore_eos": true});
    hold(client, &body, Duration::from_secs(8));
}

#[test]
fn no_request_takes_the_memory_or_the_time_of_others() {
    let server = Server::start(&[]);
    withstands(&server, "long prompts", long_prompts);
    withstands(&server, "stop strings", stop_strings);
    withstands(&server, "many tokens", many_tokens);
}

/// A request that can never have its places in the queue is told so.
#[test]
fn more_sequences_than_the_queue_has_places_are_refused_for_good() {
    let server = Server::start(&["--max-waiting", "16"]);
    let client = server.client();
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4, "n": 32});
    let begin = Instant::now();
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(begin.elapsed() < REFUSAL * patience());
    ask(client);
}
