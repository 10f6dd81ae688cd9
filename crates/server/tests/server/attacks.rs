//! Requests that are small or cheap to send and would be dear to serve: each is refused before the
//! work begins, with the field, what was expected and what was found.

use std::time::{Duration, Instant};

use asynclane_server::ApiKeys;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::common::{
    CONTEXT, MODEL, Options, Server, chat, completion, events, series, server, server_with,
};

const COMPLETIONS: &str = "/v1/completions";

/// An error, and words of its message.
#[derive(Clone, Copy)]
struct Fault<'a> {
    code: &'a str,
    param: &'a str,
    words: &'a [&'a str],
}

fn exceeded<'a>(param: &'a str, words: &'a [&'a str]) -> Fault<'a> {
    let code = "context_length_exceeded";
    Fault { code, param, words }
}

fn invalid<'a>(param: &'a str, words: &'a [&'a str]) -> Fault<'a> {
    let code = "invalid_value";
    Fault { code, param, words }
}

/// Checks that `body` is refused with `fault`.
async fn refused(server: &Server, path: &str, body: &Value, fault: Fault<'_>) {
    let Fault { code, param, words } = fault;
    let begin = Instant::now();
    let (status, answer) = server.post(path, body).await;
    let head: String = body.to_string().chars().take(80).collect();
    assert_eq!(status, StatusCode::BAD_REQUEST, "{head}: {answer}");
    let error = &answer["error"];
    assert_eq!(error["code"], code, "{head}: {error}");
    assert_eq!(error["param"], param, "{head}: {error}");
    let message = error["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{message} has {word}");
    }
    // Two seconds in a release build; tests run others beside this one.
    assert!(begin.elapsed() < Duration::from_secs(10), "{head}");
}

#[tokio::test]
async fn a_text_that_cannot_fit_is_refused_by_its_bytes() {
    let server = server();
    let longest = server.tokenizer.longest_token_bytes().unwrap();
    let most = CONTEXT as usize * longest;
    let long = "a b ".repeat(3 << 20);
    let expected = format!("expected at most {most}");
    let words: &[&str] = &["bytes", &expected];
    refused(
        &server,
        COMPLETIONS,
        &completion(json!({"prompt": long})),
        exceeded("prompt", words),
    )
    .await;
    let body = completion(json!({"prompt": ["a", long]}));
    refused(&server, COMPLETIONS, &body, exceeded("prompt", words)).await;
    let body = completion(json!({"suffix": long}));
    refused(&server, COMPLETIONS, &body, exceeded("suffix", words)).await;
    let body = chat(json!({"messages": [{"role": "user", "content": long}]}));
    refused(
        &server,
        "/v1/chat/completions",
        &body,
        exceeded("messages", words),
    )
    .await;
    // Truncation and `/tokenize` read up to 1 MiB, whatever the context is.
    let words: &[&str] = &["expected at most 1048576"];
    let fault = exceeded("prompt", words);
    let body = completion(json!({"prompt": long, "truncate_prompt_tokens": 8}));
    refused(&server, COMPLETIONS, &body, fault).await;
    refused(&server, "/tokenize", &json!({"prompt": long}), fault).await;
    let fitting = "a ".repeat(most);
    let kept = json!({"prompt": fitting, "truncate_prompt_tokens": 8, "max_tokens": 2});
    assert_eq!(server.complete(kept).await["usage"]["prompt_tokens"], 8);
    let (status, tokens) = server.post("/tokenize", &json!({"prompt": fitting})).await;
    assert_eq!(status, StatusCode::OK);
    assert!(tokens["count"].as_u64().unwrap() > CONTEXT.into());
    // Ids are counted before their text is made.
    let ids = completion(json!({"prompt": vec![6; 1 << 20]}));
    let words: &[&str] = &["has 1048576 tokens"];
    refused(&server, COMPLETIONS, &ids, exceeded("prompt", words)).await;
}

#[tokio::test]
async fn a_request_has_a_bounded_number_of_sequences_and_tokens() {
    let mut options = Options::default();
    options.settings.limits.max_sequences = 64;
    options.settings.limits.max_request_tokens = 5000;
    let server = server_with(options);
    let words: &[&str] = &[
        "at most 64 sequences (server.max_sequences)",
        "9 prompts x n 8",
    ];
    let body = completion(json!({"prompt": vec!["a"; 9], "n": 8}));
    refused(&server, COMPLETIONS, &body, invalid("n", words)).await;
    let body = completion(json!({"prompt": vec!["a"; 65]}));
    let words: &[&str] = &["at most 64 sequences"];
    refused(&server, COMPLETIONS, &body, invalid("prompt", words)).await;
    let body = completion(json!({"best_of": 65}));
    refused(&server, COMPLETIONS, &body, invalid("best_of", words)).await;

    let words: &[&str] = &[
        "at most 5000 tokens",
        "server.max_request_tokens",
        "in 13 sequences",
    ];
    let body = completion(json!({"prompt": [6], "n": 13, "max_tokens": 400}));
    refused(&server, COMPLETIONS, &body, invalid("max_tokens", words)).await;
    let words: &[&str] = &["at most 5000 tokens", "got 8401 in 1 sequences"];
    let body = completion(json!({"prompt": [6], "max_tokens": 400, "logprobs": 20}));
    refused(&server, COMPLETIONS, &body, invalid("max_tokens", words)).await;
    let body = chat(json!({"n": 20, "max_completion_tokens": 300}));
    let words: &[&str] = &["at most 5000 tokens"];
    let expected = invalid("max_completion_tokens", words);
    refused(&server, "/v1/chat/completions", &body, expected).await;
    // 12 x (16 + 400) = 4992.
    let fits = json!({"prompt": vec![6; 16], "n": 12, "max_tokens": 400, "stop_token_ids": [7]});
    assert_eq!(
        server.complete(fits).await["choices"]
            .as_array()
            .unwrap()
            .len(),
        12
    );
}

#[tokio::test]
async fn stop_strings_have_a_bounded_number_of_bytes() {
    let server = server();
    let words: &[&str] = &["at most 65536 bytes", "got 262144"];
    let body = completion(json!({"stop": vec!["\u{1F95A}".repeat(1024); 64]}));
    refused(&server, COMPLETIONS, &body, invalid("stop", words)).await;
    let fits = json!({"stop": vec!["~".repeat(1024); 64], "n": 16, "max_tokens": 4});
    assert_eq!(
        server.complete(fits).await["choices"]
            .as_array()
            .unwrap()
            .len(),
        16
    );
}

#[tokio::test]
async fn biases_are_counted_over_all_sequences() {
    let server = server();
    let biases: serde_json::Map<String, Value> =
        (0..842).map(|id| (id.to_string(), json!(1))).collect();
    let prompts = vec!["a"; 8];
    let body = completion(json!({"logit_bias": biases, "prompt": prompts, "n": 128}));
    let words: &[&str] = &["at most 524288 members", "got 842 x 1024"];
    refused(&server, COMPLETIONS, &body, invalid("logit_bias", words)).await;
    let fits = json!({"logit_bias": biases, "n": 8, "max_tokens": 2});
    assert_eq!(
        server.complete(fits).await["choices"]
            .as_array()
            .unwrap()
            .len(),
        8
    );
}

/// A body whose frames the test sends one by one.
fn slow_body() -> (Request<Body>, mpsc::UnboundedSender<Bytes>) {
    let (frames, receiver) = mpsc::unbounded_channel();
    let stream = futures_util::stream::unfold(receiver, |mut frames| async {
        let frame: Bytes = frames.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), frames))
    });
    let request = Request::post(COMPLETIONS).body(Body::from_stream(stream));
    (request.unwrap(), frames)
}

#[tokio::test]
async fn unfinished_bodies_share_a_budget_that_short_ones_do_not_need() {
    let mut options = Options::default();
    options.settings.limits.max_body_bytes = 1 << 20;
    options.settings.limits.max_bytes_in_flight = 4 << 20;
    let server = server_with(options);
    let mut held = Vec::new();
    // 3 MiB for the long parts, each byte twice: the second one does not fit.
    for _ in 0..2 {
        let (request, frames) = slow_body();
        frames.send(Bytes::from(vec![b' '; 1 << 20])).unwrap();
        let router = server.router.clone();
        held.push((
            frames,
            tokio::spawn(tower::ServiceExt::oneshot(router, request)),
        ));
    }
    let (_frames, second) = held.pop().unwrap();
    let answer = second.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.headers().contains_key("retry-after"));
    server.complete(json!({"max_tokens": 4})).await;
    // The client of the first one leaves: its bytes are free again.
    let (frames, first) = held.pop().unwrap();
    first.abort();
    drop(frames);
    let (request, frames) = slow_body();
    let filler = vec![b' '; (1 << 20) - 100];
    frames.send(Bytes::from(filler)).unwrap();
    let body = completion(json!({"max_tokens": 1})).to_string();
    frames.send(Bytes::from(body.into_bytes())).unwrap();
    drop(frames);
    let (status, ..) = server.call(request).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_given_up() {
    let server = server();
    let (request, frames) = slow_body();
    frames.send(Bytes::from_static(b"{")).unwrap();
    let begin = tokio::time::Instant::now();
    let (status, ..) = server.call(request).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert!(begin.elapsed() < Duration::from_secs(11));
}

/// A byte now and then does not keep a body alive.
#[tokio::test(start_paused = true)]
async fn a_dripping_body_is_given_up() {
    let server = server();
    let (request, frames) = slow_body();
    tokio::spawn(async move {
        frames.send(Bytes::from(vec![b' '; 100 << 10])).unwrap();
        while frames.send(Bytes::from_static(b" ")).is_ok() {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    });
    let begin = tokio::time::Instant::now();
    let (status, ..) = server.call(request).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert!(begin.elapsed() < Duration::from_secs(11));
}

#[tokio::test]
async fn a_grammar_that_becomes_too_complex_is_a_fault_of_its_request() {
    let server = server();
    // It cannot end before a character that no word of the model has.
    let grammar = "start: s \"\u{2603}\u{2603}\"\ns: s s s s | s s s | s s | | /[^\"]/ | /[a-zA-Z ]/ | /[^,]/ | /./\n";
    let fields = json!({"grammar": grammar, "max_tokens": 400, "temperature": 1, "seed": 3});
    let body = completion(fields);
    let words: &[&str] = &["the grammar is too complex"];
    refused(&server, COMPLETIONS, &body, invalid("grammar", words)).await;
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let last = events(&server.stream(COMPLETIONS, &streamed).await).pop();
    let error = &last.unwrap()["error"];
    assert_eq!(error["code"], "invalid_value", "{error}");
    assert_eq!(error["param"], "grammar", "{error}");
    // The alert on failures counts none of them.
    let metrics = server.metrics().await;
    let ended = |outcome: &str| {
        let labels =
            format!("{{endpoint=\"{COMPLETIONS}\",model_name=\"{MODEL}\",outcome=\"{outcome}\"}}");
        series(&metrics, &format!("asynclane_requests_total{labels}"))
    };
    assert_eq!((ended("invalid"), ended("failed")), (2.0, 0.0));
}

/// A server with the keys `one` and `two`, and little room for bodies.
fn for_two() -> Server {
    let mut options = Options::default();
    options.settings.keys = ApiKeys::parse("a:one\nb:two").unwrap();
    options.settings.limits.max_body_bytes = 1 << 20;
    options.settings.limits.max_bytes_in_flight = 4 << 20;
    options.settings.timeouts.grammar = Duration::ZERO;
    server_with(options)
}

/// A request of `key` with `fields`, and blanks behind its body.
async fn ask_as(server: &Server, key: &str, fields: Value, blanks: usize) -> StatusCode {
    let body = completion(fields).to_string() + &" ".repeat(blanks);
    let request = Request::post(COMPLETIONS).header("authorization", format!("Bearer {key}"));
    let request = request.header("content-type", "application/json");
    server.call(request.body(Body::from(body)).unwrap()).await.0
}

#[tokio::test]
async fn the_unfinished_bodies_of_one_key_leave_room_to_another() {
    let server = for_two();
    let flood: Vec<_> = (0..40)
        .map(|_| {
            let (mut request, frames) = slow_body();
            let key = "Bearer one".parse().unwrap();
            request.headers_mut().insert("authorization", key);
            frames.send(Bytes::from(vec![b' '; 150 << 10])).unwrap();
            let server = server.clone();
            (
                tokio::spawn(async move { server.call(request).await.0 }),
                frames,
            )
        })
        .collect();
    // Of the first key, as many are refused as find no room.
    while flood.iter().all(|(answer, _)| !answer.is_finished()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let two = ask_as(&server, "two", json!({"max_tokens": 1}), 200_000).await;
    assert_eq!(two, StatusCode::OK);
    let one = ask_as(&server, "one", json!({"max_tokens": 1}), 200_000).await;
    assert_eq!(one, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn grammars_of_one_key_and_of_another_are_compiled_in_turns() {
    let server = for_two();
    let slow = (0..40).map(|at| {
        let regex = format!("{}{at}", "\\w".repeat(1900));
        let server = server.clone();
        tokio::spawn(async move {
            ask_as(&server, "one", json!({"max_tokens": 1, "regex": regex}), 0).await
        })
    });
    let slow: Vec<_> = slow.collect();
    let format = json!({"max_tokens": 1, "response_format": {"type": "json_object"}});
    let begin = Instant::now();
    assert_eq!(ask_as(&server, "two", format, 0).await, StatusCode::OK);
    let time = begin.elapsed();
    for answer in slow {
        let status = answer.await.unwrap();
        let is_known = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        assert!(is_known, "{status}");
    }
    assert!(
        time < begin.elapsed() / 2,
        "{time:?} of {:?}",
        begin.elapsed()
    );
}
