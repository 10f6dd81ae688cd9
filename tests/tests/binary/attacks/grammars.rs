//! Grammars that are dear to compile or to follow.

use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::process::{Server, patience};
use serde_json::json;

use super::{COMPLETIONS, hold, refused, withstands};

/// Every rule may derive nothing, in many ways.
const AMBIGUOUS: &str = concat!(
    "start: s\n",
    "s: s s s s | s s s | s s | | /[^\"]/ | /[a-zA-Z ]/ | /[^,]/ | /./ | /[a-z. 0-9]/\n"
);

/// Patterns whose automata grow without bound.
fn hostile_patterns(client: Client) {
    let patterns = [".?".repeat(32_000), ".?".repeat(9_000), "(|a)".repeat(8_000)];
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

/// Rules with parameters whose compilation, or first step, would not end; another client's structured
/// requests are answered meanwhile.
fn endless(client: Client) {
    for lead in ["", "/[A-Za-z0-9 .]{40}/ "] {
        let grammar = format!("start: {lead}a::0x0\na::_: a::incr([0:20])");
        let body = json!({"model": "demo", "prompt": "a", "max_tokens": 60, "grammar": grammar});
        for _ in 0..4 {
            refused(client, &body, ("invalid_value", "grammar"));
        }
        let body = json!({"model": "demo", "prompt": "a", "max_tokens": 8,
            "response_format": {"type": "json_object"}});
        let begin = Instant::now();
        client.json(COMPLETIONS, &body);
        assert!(begin.elapsed() < Duration::from_secs(5) * patience());
    }
    let health = client.get("/health").json();
    assert_eq!(health["pools"]["compile"]["stuck"], 0, "{health}");
}

/// 64 sequences under an ambiguous grammar; then their client leaves.
fn ambiguous_grammar(client: Client) {
    let body = json!({"model": "demo", "prompt": "a", "n": 64, "max_tokens": 500,
        "temperature": 1, "grammar": AMBIGUOUS});
    hold(client, &body, Duration::from_secs(5));
    // The sequences that the client has left behind delay nobody either.
    std::thread::sleep(Duration::from_secs(2));
}

/// A grammar that its sequences outgrow is a fault of the request.
fn too_complex(client: Client) {
    let grammar = AMBIGUOUS.replace("start: s", "start: s \"\u{2603}\u{2603}\"");
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 400, "temperature": 1,
        "seed": 3, "grammar": grammar});
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(answer.error()["param"], "grammar", "{}", answer.text());
}

#[test]
fn grammars_hold_up_nobody() {
    let server = Server::start(&[]);
    withstands(&server, "grammars that never end", endless);
    withstands(&server, "hostile patterns", hostile_patterns);
    withstands(&server, "an ambiguous grammar", ambiguous_grammar);
    withstands(&server, "a grammar that is too complex", too_complex);
}
