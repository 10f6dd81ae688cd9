//! `asynclane serve`: a streamed answer, and the end after a signal.

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use demo::grade::grade;
use serde_json::json;

use crate::sum;

/// Requests until a test that waits in vain has failed.
const MOST_REQUESTS: usize = 100_000;

#[test]
fn streams_a_correct_answer_and_ends_on_sigterm() {
    let server = Server::start(&["--decoder", "vanilla"]);
    let problem = sum();
    let body = json!({
        "model": "demo",
        "messages": [{"role": "user", "content": problem.prompt}],
        "max_tokens": 128,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let events = server.client().stream("/v1/chat/completions", &body);
    let reply = Reply::of_events(events);
    let choice = &reply.choices[0];
    assert!(grade(&problem, &choice.text).strict, "{}", choice.text);
    assert_eq!(choice.finish_reason, "stop");

    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn sigterm_lets_an_accepted_stream_finish() {
    let server = Server::start(&[]);
    let client = server.client();
    let budget = 256;
    // One token per forward over the whole canvas: slow enough to be under way at the signal.
    let body = json!({
        "model": "demo",
        "prompt": "Mia has 12 eggs.",
        "max_tokens": budget,
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true},
        "diffusion": {"preset": "vanilla"},
    });
    let mut events = client.stream("/v1/completions", &body);
    let first = events.next().expect("a chunk");
    assert_eq!(client.get("/ready").status, 200);
    server.signal("TERM");
    let mut probes = (0..MOST_REQUESTS).map(|_| client.get("/ready").status);
    assert!(probes.any(|status| status == 503), "the drain begins");

    let refused = client.post("/v1/completions", &json!({"model": "demo", "prompt": "Hi"}));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "shutting_down");
    assert!(refused.headers.contains_key("retry-after"));

    let reply = Reply::of_events(std::iter::once(first).chain(events));
    assert_eq!(reply.count("completion_tokens"), budget);
    assert_eq!(reply.choices[0].finish_reason, "length");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}
