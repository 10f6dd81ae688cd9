//! Requests that are small or cheap to send and would be dear to serve: each is refused before the
//! work begins, with the field, the limit and the value that was found.

use std::time::{Duration, Instant};

use asynclane_server::ApiKeys;
use axum::body::{Body, Bytes};
use axum::http::Request;
use tokio::sync::mpsc;

use crate::common::*;

const TOKENIZE: &str = "/tokenize";
const EXCEEDED: &str = "context_length_exceeded";
const INVALID: &str = "invalid_value";

/// Checks that requests are refused at once with messages that have these words.
async fn refuses<const N: usize>(server: &Server, cases: [(&str, Value, &str, &str, &[&str]); N]) {
    for (path, fields, code, param, words) in cases {
        let begin = Instant::now();
        let message = server.refused(path, &fields, code, param).await;
        for word in words {
            assert!(message.contains(word), "{message} has {word}");
        }
        // Two seconds in a release build; tests run others beside this one.
        assert!(begin.elapsed() < Duration::from_secs(10), "{message}");
    }
}

/// Checks that a request of many choices succeeds.
async fn fits(server: &Server, fields: Value, choices: usize) {
    let answer = server.complete(fields).await;
    assert_eq!(items(&answer["choices"]).len(), choices);
}

#[tokio::test]
async fn a_text_that_cannot_fit_is_refused_by_its_bytes() {
    let server = server();
    let longest = server.tokenizer.longest_token_bytes().unwrap();
    let most = CONTEXT as usize * longest;
    let long = "a b ".repeat(3 << 20);
    let expected = format!("expected at most {most}");
    let (bytes, whole): (&[&str], &[&str]) = (&["bytes", &expected], &["expected at most 1048576"]);
    let said = json!([{"role": "user", "content": long}]);
    let cut = json!({"prompt": long, "truncate_prompt_tokens": 8});
    let cases = rows! {
        COMPLETIONS, json!({"prompt": long}), EXCEEDED, "prompt", bytes;
        COMPLETIONS, json!({"prompt": ["a", long]}), EXCEEDED, "prompt", bytes;
        COMPLETIONS, json!({"suffix": long}), EXCEEDED, "suffix", bytes;
        CHAT, json!({"messages": said}), EXCEEDED, "messages", bytes;
        // Truncation and `/tokenize` read up to 1 MiB, whatever the context is.
        COMPLETIONS, cut, EXCEEDED, "prompt", whole;
        TOKENIZE, json!({"prompt": long}), EXCEEDED, "prompt", whole;
        // Ids are counted before their text is made.
        COMPLETIONS, json!({"prompt": vec![6; 1 << 20]}), EXCEEDED, "prompt", &["has 1048576 tokens"];
    };
    refuses(&server, cases).await;
    let fitting = "a ".repeat(most);
    let kept = json!({"prompt": fitting, "truncate_prompt_tokens": 8, "max_tokens": 2});
    assert_eq!(server.complete(kept).await["usage"]["prompt_tokens"], 8);
    let tokens = server.ask(TOKENIZE, json!({"prompt": fitting})).await;
    assert!(tokens["count"].as_u64().unwrap() > CONTEXT.into());
}

#[tokio::test]
async fn a_request_has_a_bounded_number_of_sequences_and_tokens() {
    let server = server_where(|options| {
        options.settings.limits.max_sequences = 64;
        options.settings.limits.max_request_tokens = 5000;
    });
    let (prompts, tokens) = (vec!["a"; 9], "at most 5000 tokens");
    let cases = rows! {
        COMPLETIONS, json!({"prompt": prompts, "n": 8}), INVALID, "n",
            &["at most 64 sequences (server.max_sequences)", "9 prompts x n 8"] as &[&str];
        COMPLETIONS, json!({"prompt": vec!["a"; 65]}), INVALID, "prompt", &["at most 64 sequences"];
        COMPLETIONS, json!({"best_of": 65}), INVALID, "best_of", &["at most 64 sequences"];
        COMPLETIONS, json!({"prompt": [6], "n": 13, "max_tokens": 400}), INVALID, "max_tokens",
            &[tokens, "server.max_request_tokens", "in 13 sequences"];
        COMPLETIONS, json!({"prompt": [6], "max_tokens": 400, "logprobs": 20}), INVALID, "max_tokens",
            &[tokens, "got 8401 in 1 sequences"];
        CHAT, json!({"n": 20, "max_completion_tokens": 300}), INVALID, "max_completion_tokens",
            &[tokens];
    };
    refuses(&server, cases).await;
    // 12 x (16 + 400) = 4992.
    let fields = json!({"prompt": vec![6; 16], "n": 12, "max_tokens": 400, "stop_token_ids": [7]});
    fits(&server, fields, 12).await;
}

#[tokio::test]
async fn stop_strings_and_biases_are_counted_over_all_sequences() {
    let server = server();
    let biases: serde_json::Map<String, Value> =
        (0..842).map(|id| (id.to_string(), json!(1))).collect();
    let (stops, prompts) = (vec!["\u{1F95A}".repeat(1024); 64], vec!["a"; 8]);
    let many = json!({"logit_bias": biases, "prompt": prompts, "n": 128});
    let cases = rows! {
        COMPLETIONS, json!({"stop": stops}), INVALID, "stop",
            &["at most 65536 bytes", "got 262144"] as &[&str];
        COMPLETIONS, many, INVALID, "logit_bias", &["at most 524288 members", "got 842 x 1024"];
    };
    refuses(&server, cases).await;
    let stops = json!({"stop": vec!["~".repeat(1024); 64], "n": 16, "max_tokens": 4});
    fits(&server, stops, 16).await;
    let biased = json!({"logit_bias": biases, "n": 8, "max_tokens": 2});
    fits(&server, biased, 8).await;
}

type Frames = mpsc::UnboundedSender<Bytes>;

/// A body that begins with `start`, and whose other frames the test sends one by one.
fn slow_body(headers: &[(&str, &str)], start: Vec<u8>) -> (Request<Body>, Frames) {
    let (frames, receiver) = mpsc::unbounded_channel();
    frames.send(Bytes::from(start)).unwrap();
    let stream = futures_util::stream::unfold(receiver, |mut frames| async {
        let frame: Bytes = frames.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), frames))
    });
    let body = Body::from_stream(stream);
    (request("POST", COMPLETIONS, headers, body), frames)
}

#[tokio::test]
async fn unfinished_bodies_share_a_budget_that_short_ones_do_not_need() {
    let server = server_where(|options| {
        options.settings.limits.max_body_bytes = 1 << 20;
        options.settings.limits.max_bytes_in_flight = 4 << 20;
    });
    // 3 MiB for the long parts, each byte twice: the second one does not fit.
    let [(first, frames), (second, _frames)] = [0; 2].map(|_| slow_body(&[], vec![b' '; 1 << 20]));
    let router = server.router.clone();
    let first = tokio::spawn(async move { call(&router, first).await });
    let asking = server.clone();
    let second = tokio::spawn(async move { asking.call(second).await });
    let reply = second.await.unwrap();
    assert_eq!(reply.status, 429);
    assert!(reply.headers.contains_key("retry-after"));
    server.complete(json!({"max_tokens": 4})).await;
    // The client of the first one leaves: its bytes are free again.
    first.abort();
    drop(frames);
    let (request, frames) = slow_body(&[], vec![b' '; (1 << 20) - 100]);
    let body = completion(json!({"max_tokens": 1})).to_string();
    frames.send(Bytes::from(body)).unwrap();
    drop(frames);
    assert_eq!(server.call(request).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_late_body_is_given_up() {
    let server = server();
    let kib = 1 << 10;
    // Nothing, a byte, and a byte now and then, which does not keep a body alive.
    for (start, drips) in [(0, false), (1, false), (100 * kib, true)] {
        let (request, frames) = slow_body(&[], vec![b'{'; start]);
        let client = tokio::spawn(async move {
            while drips && frames.send(Bytes::from_static(b" ")).is_ok() {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            frames.closed().await;
        });
        let begin = tokio::time::Instant::now();
        let reply = server.call(request).await;
        assert_eq!(reply.fault(408), "request_timeout");
        assert!(begin.elapsed() < Duration::from_secs(11));
        client.await.unwrap();
    }
}

#[tokio::test]
async fn a_grammar_that_becomes_too_complex_is_a_fault_of_its_request() {
    let server = server();
    // It cannot end before a character that no word of the model has.
    let grammar = "start: s \"\u{2603}\u{2603}\"\ns: s s s s | s s s | s s | | /[^\"]/ | /[a-zA-Z ]/ | /[^,]/ | /./\n";
    let fields = json!({"grammar": grammar, "max_tokens": 400, "temperature": 1, "seed": 3});
    let words: &[&str] = &["the grammar is too complex"];
    let case = (COMPLETIONS, fields.clone(), INVALID, "grammar", words);
    refuses(&server, [case]).await;
    let last = events(&server.stream(COMPLETIONS, fields).await).pop();
    has!(last.unwrap(), {"error": {"code": INVALID, "param": "grammar"}});
    // The alert on failures counts none of them.
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, COMPLETIONS, "invalid"), 2.0);
    assert_eq!(outcomes(&metrics, COMPLETIONS, "failed"), 0.0);
}

/// A server with the keys `one` and `two`, and little room for bodies.
fn server_of_two() -> Server {
    server_where(|options| {
        options.settings.keys = ApiKeys::parse("a:one\nb:two").unwrap();
        options.settings.limits.max_body_bytes = 1 << 20;
        options.settings.limits.max_bytes_in_flight = 4 << 20;
        options.settings.timeouts.grammar = Duration::ZERO;
    })
}

/// The status of a request of `key` with `fields`, and blanks behind its body.
async fn ask_as(server: &Server, key: &str, fields: Value, blanks: usize) -> u16 {
    let body = completion(fields).to_string() + &" ".repeat(blanks);
    let key = format!("Bearer {key}");
    let headers = [("authorization", &*key)];
    let reply = server.send("POST", COMPLETIONS, &headers, body).await;
    reply.status.as_u16()
}

#[tokio::test]
async fn the_unfinished_bodies_of_one_key_leave_room_to_another() {
    let server = server_of_two();
    let mut flood = Vec::new();
    for _ in 0..40 {
        let header = ("authorization", "Bearer one");
        let (request, frames) = slow_body(&[header], vec![b' '; 150 << 10]);
        let server = server.clone();
        let answer = tokio::spawn(async move { server.call(request).await });
        flood.push((answer, frames));
    }
    // Requests of the first key that find no room are refused.
    while flood.iter().all(|(answer, _)| !answer.is_finished()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (key, status) in [("two", 200), ("one", 429)] {
        let found = ask_as(&server, key, json!({"max_tokens": 1}), 200_000).await;
        assert_eq!(found, status, "{key}");
    }
}

#[tokio::test]
async fn grammars_of_one_key_and_of_another_are_compiled_in_turns() {
    let server = server_of_two();
    let begin = Instant::now();
    let slow = (0..40).map(|index| {
        let regex = format!("{}{index}", "\\w".repeat(1900));
        let server = server.clone();
        let fields = json!({"max_tokens": 1, "regex": regex});
        tokio::spawn(async move { ask_as(&server, "one", fields, 0).await })
    });
    let slow: Vec<_> = slow.collect();
    let format = json!({"max_tokens": 1, "response_format": {"type": "json_object"}});
    assert_eq!(ask_as(&server, "two", format, 0).await, 200);
    let time = begin.elapsed();
    for answer in slow {
        assert!([200, 429].contains(&answer.await.unwrap()));
    }
    let whole = begin.elapsed();
    assert!(time < whole / 2, "{time:?} of {whole:?}");
}
