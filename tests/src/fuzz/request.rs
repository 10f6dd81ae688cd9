//! Bodies of requests: every endpoint answers with 200 or an error of the client, whole and
//! well-formed, and the engine is idle afterwards.

use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use serde_json::Value;
use server::{AppState, Settings};
use sim::SimExecutor;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use super::{Outcome, Target};
use crate::{crowd, served};

/// The target.
pub const TARGET: Target = Target {
    name: "request",
    run,
    words: "null¦1e400¦\\u0000¦\\ud800¦[[[[¦9223372036854775808¦-0.0¦NaN¦\"a\",",
    memory: 300,
    accepted: 20,
};

/// The endpoints that read a JSON body.
pub const PATHS: [&str; 5] =
    ["/v1/completions", "/v1/chat/completions", "/v1/diffusion/trace", "/tokenize", "/detokenize"];
/// Translated endpoints.
const TRANSLATED: [&str; 3] = ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"];
/// An answer that takes longer hangs.
const LONG: Duration = Duration::from_secs(30);
/// Limits of a request, small enough for many requests.
const SEQUENCES: u32 = 16;
const TOKENS: u64 = 2_048;

/// A server without a socket.
struct Server {
    runtime: Runtime,
    router: Router,
    state: AppState,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let executor = SimExecutor::new(crowd::model()).expect("the sizes are valid");
    let mut settings = Settings::default();
    settings.limits.max_sequences = SEQUENCES;
    settings.limits.max_request_tokens = TOKENS;
    let state = served::state_over(Box::new(executor), settings);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    Server {
        runtime: runtime.expect("the system gives threads"),
        router: server::router(state.clone()),
        state,
    }
});

/// `data` is the body of a request to each endpoint.
pub fn run(data: &[u8]) -> Outcome {
    let mut outcome = Outcome::Refused;
    for path in PATHS.into_iter().chain(TRANSLATED) {
        let (status, media, body) = SERVER.runtime.block_on(async {
            let answer = tokio::time::timeout(LONG, answer(path, data)).await;
            answer.unwrap_or_else(|_| panic!("{path}: no answer within {LONG:?}"))
        });
        if check(path, (status, &media, &body)) {
            outcome = Outcome::Accepted;
        }
    }
    idle();
    outcome
}

/// The status, the media type and the text of the answer to a request.
async fn answer(path: &str, data: &[u8]) -> (u16, String, String) {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(data.to_vec()));
    let answer = SERVER.router.clone().oneshot(request.expect("it is complete")).await;
    let (head, body) = answer.expect("the router always answers").into_parts();
    let body = body.collect().await.expect("the body ends").to_bytes();
    let media = head.headers.get(CONTENT_TYPE);
    let media = media.map_or("", |media| media.to_str().expect("it is text"));
    let body = String::from_utf8(body.to_vec()).expect("answers are UTF-8");
    (head.status.as_u16(), media.to_owned(), body)
}

/// Checks an answer; returns true if the request was valid.
fn check(path: &str, (status, media, body): (u16, &str, &str)) -> bool {
    match (status, media) {
        (200, "text/event-stream") => check_stream(body),
        (200, "application/json") => drop(parsed(body)),
        (400..=499, "application/json") if path.starts_with("/v1/messages") => {
            check_anthropic(body);
        }
        (400..=499, "application/json") => check_error(&parsed(body)["error"]),
        _ => panic!("{path}: {status} {media}: {body}"),
    }
    status == 200
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The end mark comes last; an error is one of the client.
fn check_stream(body: &str) {
    let events = body.strip_suffix("\n\n");
    let events = events.expect("a stream ends with an event").split("\n\n");
    let payloads = events.map(|event| {
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        data.unwrap_or_else(|| panic!("no data in {event}"))
    });
    let mut payloads: Vec<&str> = payloads.collect();
    // A trace ends with its usage or an error instead of the mark.
    let traced = body.starts_with("event: ");
    let end = payloads.pop_if(|payload| *payload == "[DONE]");
    assert!(end.is_some() != traced, "{body}");
    for payload in payloads {
        let event = parsed(payload);
        if !event["error"].is_null() {
            check_error(&event["error"]);
        }
    }
}

/// An error of the client's fault in Anthropic's shape.
fn check_anthropic(body: &str) {
    let error = parsed(body);
    assert_eq!(error["type"], "error", "{error}");
    let kind = &error["error"]["type"];
    let kinds = ["invalid_request_error", "not_found_error"];
    assert!(kinds.iter().any(|known| kind == known), "{error}");
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!((1..=500).contains(&message.chars().count()), "{error}");
}

/// An error object of the client's fault, whole.
fn check_error(error: &Value) {
    let object = error.as_object();
    let object = object.unwrap_or_else(|| panic!("no error object: {error}"));
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{error}");
    assert_eq!(error["type"], "invalid_request_error", "{error}");
    let code = error["code"].as_str().unwrap_or_default();
    let param = &error["param"];
    assert!(!code.is_empty() && (param.is_null() || param.is_string()), "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!((1..=500).contains(&message.chars().count()), "{error}");
    for fault in [".rs:", "panicked", "compiler failed"] {
        assert!(!message.contains(fault), "{error}");
    }
}

/// Waits until no sequence is left, and the engine lives.
fn idle() {
    let backend = SERVER.state.backend();
    let engine = &backend.expect("the model is installed").engine;
    for _ in 0..100_000 {
        assert!(engine.is_alive(), "the engine has ended");
        let load = engine.load();
        if load.running == 0 && load.waiting == 0 && load.pages_used == 0 {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("sequences are left: {:?}", engine.load());
}
