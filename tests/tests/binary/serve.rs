//! The shutdown of `asynclane serve` after a signal.

use asynclane_tests::client::{Client, Events};
use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use serde_json::{Value, json};

/// Polls until a waiting test fails.
const MOST_REQUESTS: usize = 100_000;
/// Streams that are open when the signal is sent.
const STREAMS: usize = 4;
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// The streams that are open when the signal is sent: one token per forward over the whole canvas, slow
/// enough to be open then, and others of all lengths.
fn running() -> Vec<(&'static str, Value)> {
    let prompts = ["Mia has 12 eggs.", "Ben buys 3 pens.", "Reverse the list eggs, pens."];
    let stream = |index: usize| {
        let prompt = prompts[index % prompts.len()];
        let mut body = json!({"model": "demo", "max_tokens": 96 - 16 * index, "seed": index,
            "temperature": 0.8 * (index % 2) as f64, "ignore_eos": true, "stream": true,
            "stream_options": {"include_usage": true}, "diffusion": {"preset": "vanilla"}});
        if index.is_multiple_of(3) {
            body["messages"] = json!([{"role": "user", "content": prompt}]);
            (CHAT, body)
        } else {
            body["prompt"] = json!(prompt);
            (COMPLETIONS, body)
        }
    };
    (0..STREAMS).map(stream).collect()
}

/// Checks that `client` is refused because the server shuts down.
fn refused(client: Client) {
    let prompt = json!({"model": "demo", "prompt": "Hi"});
    let chat = json!({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]});
    let mut streamed = chat.clone();
    streamed["stream"] = json!(true);
    let answers = [
        client.get("/ready"),
        client.post(COMPLETIONS, &prompt),
        client.post(CHAT, &chat),
        client.post(CHAT, &streamed),
        client.post("/v1/diffusion/trace", &chat),
    ];
    for answer in answers {
        assert_eq!(answer.status, 503, "{}", answer.text());
        let seconds = answer.headers["retry-after"].parse::<u32>();
        assert!(seconds.is_ok_and(|seconds| seconds > 0));
        let error = answer.error();
        assert_eq!(error["code"], "shutting_down");
        assert_eq!(error["type"], "server_error");
        assert_eq!(error["param"], Value::Null);
    }
}

#[test]
fn sigterm_under_load_cuts_nothing() {
    let server = Server::start(&[]);
    let client = server.client();
    let requests = running();
    let streams = || requests.iter().map(|(path, body)| client.stream(path, body));
    let undisturbed: Vec<Reply> = streams().map(Reply::of_events).collect();
    assert_eq!(client.get("/ready").status, 200);

    let mut streams: Vec<Events> = streams().collect();
    let begun = |events: &mut Events| events.next().expect("a chunk");
    let firsts: Vec<Value> = streams.iter_mut().map(begun).collect();
    server.signal("TERM");
    let mut probes = (0..MOST_REQUESTS).map(|_| client.get("/ready").status);
    assert!(probes.any(|status| status == 503), "the drain begins");
    refused(client);
    let load = &client.get("/load").json()["server_load"];
    let is_busy = load.as_u64().is_some_and(|load| load > 0);
    assert!(is_busy, "nothing was under way: {load}");
    assert_eq!(client.get("/health").status, 200, "it still lives");

    let finished = streams.into_iter().zip(firsts);
    let finished = finished.map(|(events, first)| std::iter::once(first).chain(events));
    let finished: Vec<Reply> = finished.map(Reply::of_events).collect();
    assert_eq!(finished, undisturbed);
    for (reply, (_, body)) in finished.iter().zip(&requests) {
        assert_eq!(reply.count("completion_tokens"), body["max_tokens"]);
    }
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let gone = client.try_get("/health").is_err();
    assert!(gone, "nobody listens any more");
}

#[test]
fn a_second_signal_ends_at_once() {
    let server = Server::start(&[]);
    let client = server.client();
    // Far more forwards than run before the second signal.
    let (path, mut body) = running().swap_remove(0);
    body["max_tokens"] = json!(900);
    let mut events = client.stream(path, &body);
    events.next().expect("a chunk");
    server.signal("INT");
    let mut probes = (0..MOST_REQUESTS).map(|_| client.get("/ready").status);
    assert!(probes.any(|status| status == 503), "the drain begins");
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(130), "{log}");
}
