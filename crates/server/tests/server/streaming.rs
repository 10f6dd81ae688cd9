//! Server-sent events: bytes of the framing, order of chunks, equality with the plain answer.

use crate::common::{Options, Server, chat, completion, events, server, server_with};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

/// The plain answer that a stream's chunks add up to: choices by index, and the last usage.
fn joined(chunks: &[Value], chat: bool) -> (Vec<Value>, Value) {
    let mut choices: Vec<Value> = Vec::new();
    let mut usage = Value::Null;
    for chunk in chunks {
        if let Some(totals) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            usage = totals.clone();
        }
        for part in chunk["choices"].as_array().unwrap() {
            let index = part["index"].as_u64().unwrap() as usize;
            while choices.len() <= index {
                choices.push(json!({"text": "", "token_ids": [], "finish_reason": null}));
            }
            let choice = &mut choices[index];
            assert_eq!(
                choice["finish_reason"],
                Value::Null,
                "nothing follows the end"
            );
            let text = if chat {
                &part["delta"]["content"]
            } else {
                &part["text"]
            };
            let text = choice["text"].as_str().unwrap().to_owned() + text.as_str().unwrap_or("");
            choice["text"] = json!(text);
            if let Some(ids) = part.get("token_ids") {
                choice["token_ids"]
                    .as_array_mut()
                    .unwrap()
                    .extend(ids.as_array().unwrap().clone());
            }
            choice["finish_reason"] = part["finish_reason"].clone();
        }
    }
    (choices, usage)
}

async fn assert_streamed_is_plain(server: &Server, is_chat: bool, fields: Value) {
    let (path, body) = match is_chat {
        true => ("/v1/chat/completions", chat(fields)),
        false => ("/v1/completions", completion(fields)),
    };
    let mut plain = body.clone();
    plain["return_token_ids"] = json!(true);
    let (status, answer) = server.post(path, &plain).await;
    assert_eq!(status, 200, "{answer}");
    let mut streamed = plain.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let (choices, usage) = joined(&events(&server.stream(path, &streamed).await), is_chat);
    assert_eq!(usage, answer["usage"], "{body}");
    let expected: Vec<_> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| {
            let text = if is_chat {
                &choice["message"]["content"]
            } else {
                &choice["text"]
            };
            json!({"text": text, "token_ids": choice["token_ids"],
                "finish_reason": choice["finish_reason"]})
        })
        .collect();
    assert_eq!(choices, expected, "{body}");
}

#[tokio::test]
async fn streamed_is_plain() {
    let server = server();
    let whole = server.complete(json!({"max_tokens": 64, "seed": 1})).await;
    let text = whole["choices"][0]["text"].as_str().unwrap();
    let stop: String = text.chars().skip(12).take(3).collect();
    let cases = [
        json!({"max_tokens": 64, "seed": 1}),
        json!({"max_tokens": 0, "seed": 1}),
        json!({"max_tokens": 100, "ignore_eos": true, "seed": 1}),
        json!({"max_tokens": 40, "n": 3, "temperature": 1.2, "seed": 5}),
        json!({"max_tokens": 64, "stop": stop, "seed": 1}),
        json!({"max_tokens": 64, "stop": stop, "include_stop_str_in_output": true, "seed": 1}),
        json!({"max_tokens": 64, "stop": stop, "min_tokens": 18, "seed": 1}),
        json!({"max_tokens": 64, "skip_special_tokens": false, "seed": 1}),
        json!({"max_tokens": 32, "seed": 1, "diffusion": {"schedule": "block_wise"}}),
        json!({"max_tokens": 32, "seed": 1, "diffusion": {"max_forwards": 2}}),
    ];
    for case in cases {
        assert_streamed_is_plain(&server, false, case.clone()).await;
        if case["max_tokens"] != 0 {
            assert_streamed_is_plain(&server, true, case).await;
        }
    }
    let lists = json!({"prompt": ["one", "two", "three"], "n": 2, "max_tokens": 30, "seed": 1,
        "echo": true});
    assert_streamed_is_plain(&server, false, lists).await;
}

#[tokio::test]
async fn the_headers_are_those_of_an_event_stream() {
    let body = completion(json!({"stream": true})).to_string();
    let request = Request::post("/v1/completions")
        .body(Body::from(body))
        .unwrap();
    let (_, headers, _) = server().call(request).await;
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(headers["cache-control"], "no-cache");
    assert_eq!(headers["x-accel-buffering"], "no");
    assert!(!headers.contains_key("content-length"));
}

#[tokio::test]
async fn a_chat_streams_role_text_and_end() {
    let body = chat(json!({"stream": true, "max_tokens": 20}));
    let chunks = events(&server().stream("/v1/chat/completions", &body).await);
    let first = &chunks[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(
        first["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    for chunk in &chunks[1..chunks.len() - 1] {
        let choice = &chunk["choices"][0];
        assert!(!choice["delta"]["content"].as_str().unwrap().is_empty());
        assert!(choice["delta"].get("role").is_none());
        assert_eq!(choice["finish_reason"], Value::Null);
    }
    for chunk in &chunks {
        assert!(chunk.get("usage").is_none());
        for key in ["id", "created", "model"] {
            assert_eq!(chunk[key], first[key]);
        }
    }
}

#[tokio::test]
async fn usage_chunks_follow_the_options() {
    let server = server();
    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = events(&server.stream("/v1/completions", &completion(fields)).await);
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["diffusion"].is_object());
    assert!(
        rest.iter()
            .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
    );

    let fields = json!({"stream": true, "stream_options": {"continuous_usage_stats": true}});
    let chunks = events(&server.stream("/v1/completions", &completion(fields)).await);
    let totals: Vec<_> = chunks
        .iter()
        .map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap())
        .collect();
    assert!(totals.is_sorted() && totals[0] > 0);
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], *totals.last().unwrap());
    assert!(
        rest.iter()
            .all(|chunk| chunk["usage"].get("diffusion").is_none())
    );
}

#[tokio::test]
async fn text_chunks_carry_ids_and_first_chunks_prompt_ids() {
    let fields = json!({"stream": true, "return_token_ids": true, "max_tokens": 30});
    let chunks = events(
        &server()
            .stream("/v1/completions", &completion(fields))
            .await,
    );
    let (last, rest) = chunks.split_last().unwrap();
    assert!(rest[0]["choices"][0]["prompt_token_ids"].is_array());
    for (index, chunk) in chunks.iter().enumerate() {
        assert_eq!(
            chunk["choices"][0].get("prompt_token_ids").is_some(),
            index == 0
        );
    }
    assert!(
        rest.iter()
            .all(|chunk| !chunk["choices"][0]["text"].as_str().unwrap().is_empty())
    );
    assert_eq!(last["choices"][0]["text"], "");
}

#[tokio::test]
async fn line_separators_are_escaped() {
    // The echoed prompt contains every character at which some clients split lines.
    let prompt = "a\u{85}b\u{2028}c\u{2029}d\r\ne";
    let fields = json!({"prompt": prompt, "echo": true, "stream": true, "max_tokens": 0});
    let stream = server()
        .stream("/v1/completions", &completion(fields))
        .await;
    assert!(
        stream.contains(r#""text":"a\u0085b\u2028c\u2029d\r\ne""#),
        "{stream}"
    );
    let (choices, _) = joined(&events(&stream), false);
    assert_eq!(choices[0]["text"], prompt);
}

#[tokio::test]
async fn a_failed_step_is_an_event_after_the_start() {
    let server = server_with(Options {
        failing: vec![1],
        ..Options::default()
    });
    let body = completion(json!({"stream": true, "max_tokens": 64}));
    let chunks = events(&server.stream("/v1/completions", &body).await);
    let error = &chunks.last().unwrap()["error"];
    assert_eq!(error["type"], "server_error");
    assert_eq!(error["code"], "internal_error");
    assert_eq!(error["param"], Value::Null);
    let answer = server.complete(json!({})).await;
    assert_eq!(
        answer["object"], "text_completion",
        "later requests are not affected"
    );
}
