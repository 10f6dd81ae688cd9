//! Server-sent events: bytes of the framing, order of chunks, equality with the plain answer.

use crate::common::*;

/// The plain answer that a stream's chunks add up to: choices by index, and the last usage.
fn joined(chunks: &[Value]) -> (Vec<Value>, Value) {
    let mut choices: Vec<(String, Vec<u32>, Value)> = Vec::new();
    let mut usage = Value::Null;
    for chunk in chunks {
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        for part in items(&chunk["choices"]) {
            let index = part["index"].as_u64().unwrap() as usize;
            if choices.len() <= index {
                choices.resize_with(index + 1, Default::default);
            }
            let (text, tokens, reason) = &mut choices[index];
            assert!(reason.is_null(), "nothing follows the end");
            let said = part["text"].as_str().or(part["delta"]["content"].as_str());
            *text += said.unwrap_or_default();
            if part["token_ids"].is_array() {
                tokens.extend(ids(&part["token_ids"]));
            }
            *reason = json!([part["finish_reason"], part["stop_reason"]]);
            if part["finish_reason"].is_null() {
                *reason = json!(null);
            }
        }
    }
    let choices = choices
        .into_iter()
        .map(|(text, tokens, reason)| json!({"text": text, "token_ids": tokens, "end": reason}));
    (choices.collect(), usage)
}

async fn assert_streamed_is_plain(server: &Server, path: &str, fields: &Value) {
    let fields = merge(fields.clone(), json!({"return_token_ids": true}));
    let answer = server.ask(path, fields.clone()).await;
    let usage = json!({"stream_options": {"include_usage": true}});
    let stream = server.stream(path, merge(fields.clone(), usage)).await;
    let (choices, usage) = joined(&events(&stream));
    assert_eq!(usage, answer["usage"], "{fields}");
    let expected = items(&answer["choices"]).iter().map(|choice| {
        let message = &choice["message"]["content"];
        let text = choice["text"].as_str().or(message.as_str());
        json!({"text": text, "token_ids": choice["token_ids"],
            "end": [choice["finish_reason"], choice["stop_reason"]]})
    });
    assert_eq!(choices, expected.collect::<Vec<_>>(), "{fields}");
}

#[tokio::test]
async fn streamed_is_plain() {
    let server = server();
    let whole = server.complete(json!({"max_tokens": 64, "seed": 1})).await;
    let stop: String = text(&whole).chars().skip(12).take(3).collect();
    for fields in [
        json!({"max_tokens": 64, "seed": 1}),
        json!({"max_tokens": 100, "ignore_eos": true, "seed": 1}),
        json!({"max_tokens": 40, "n": 3, "temperature": 1.2, "seed": 5}),
        json!({"max_tokens": 64, "stop": stop, "seed": 1}),
        json!({"max_tokens": 64, "stop": stop, "include_stop_str_in_output": true, "seed": 1}),
        json!({"max_tokens": 64, "stop": stop, "min_tokens": 18, "seed": 1}),
        json!({"max_tokens": 64, "skip_special_tokens": false, "seed": 1}),
        json!({"max_tokens": 32, "seed": 1, "diffusion": {"schedule": "block_wise"}}),
        json!({"max_tokens": 32, "seed": 1, "diffusion": {"max_forwards": 2}}),
        json!({"max_tokens": 60, "response_format": {"type": "json_object"}, "temperature": 1,
            "seed": 9}),
    ] {
        assert_streamed_is_plain(&server, COMPLETIONS, &fields).await;
        assert_streamed_is_plain(&server, CHAT, &fields).await;
    }
    let lists = json!({"prompt": ["one", "two", "three"], "n": 2, "max_tokens": 30, "seed": 1,
        "echo": true});
    for fields in [json!({"max_tokens": 0, "seed": 1}), lists] {
        assert_streamed_is_plain(&server, COMPLETIONS, &fields).await;
    }
}

#[tokio::test]
async fn the_headers_are_those_of_an_event_stream() {
    let body = body(COMPLETIONS, json!({"stream": true})).to_string();
    let reply = server().send("POST", COMPLETIONS, &[], body).await;
    for (name, value) in rows! {
        "content-type", Some("text/event-stream"); "cache-control", Some("no-cache");
        "x-accel-buffering", Some("no"); "content-length", None;
    } {
        assert_eq!(reply.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn a_chat_streams_role_text_and_end() {
    let chunks = events(&server().stream(CHAT, json!({"max_tokens": 20})).await);
    let first = &chunks[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    for (index, chunk) in chunks.iter().enumerate() {
        let choice = &chunk["choices"][0];
        let is_last = index == chunks.len() - 1;
        let said = choice["delta"]["content"].as_str().unwrap_or_default();
        let delta = match index {
            0 => json!({"role": "assistant", "content": ""}),
            _ if is_last => json!({}),
            _ => json!({"content": said}),
        };
        assert_eq!(choice["delta"], delta);
        assert_eq!(said.is_empty(), index == 0 || is_last);
        let reason = if is_last { json!("length") } else { json!(null) };
        assert_eq!(choice["finish_reason"], reason);
        assert_eq!(choice.get("stop_reason"), is_last.then_some(&json!(null)));
        assert!(chunk.get("usage").is_none());
        assert_eq!(chunk["system_fingerprint"], "0.1.0-sim");
        for key in ["id", "created", "model"] {
            assert_eq!(chunk[key], first[key]);
        }
    }
}

#[tokio::test]
async fn usage_chunks_follow_the_options() {
    let server = server();
    let streamed = async |options: Value| {
        let stream = server.stream(COMPLETIONS, json!({"stream_options": options}));
        events(&stream.await)
    };
    let chunks = streamed(json!({"include_usage": true})).await;
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["diffusion"].is_object());
    let null = Some(&Value::Null);
    assert!(rest.iter().all(|chunk| chunk.get("usage") == null));

    let chunks = streamed(json!({"continuous_usage_stats": true})).await;
    let used = |chunk: &Value| chunk["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(chunks.is_sorted_by_key(used) && used(&chunks[0]) > 0);
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    let mut usages = rest.iter().map(|chunk| &chunk["usage"]);
    assert!(usages.all(|usage| usage.get("diffusion").is_none()));
}

#[tokio::test]
async fn text_chunks_carry_ids_and_first_chunks_prompt_ids() {
    let fields = json!({"return_token_ids": true, "max_tokens": 30});
    let chunks = events(&server().stream(COMPLETIONS, fields).await);
    for (index, chunk) in chunks.iter().enumerate() {
        let choice = &chunk["choices"][0];
        assert_eq!(choice["prompt_token_ids"].is_array(), index == 0);
        assert_eq!(choice.get("prompt_token_ids").is_some(), index == 0);
        assert_eq!(choice["text"] == "", index == chunks.len() - 1);
    }
}

#[tokio::test]
async fn line_separators_are_escaped() {
    // The echoed prompt contains every character at which some clients split lines.
    let prompt = "a\u{85}b\u{2028}c\u{2029}d\r\ne";
    let fields = json!({"prompt": prompt, "echo": true, "max_tokens": 0});
    let stream = server().stream(COMPLETIONS, fields).await;
    let escaped = r#""text":"a\u0085b\u2028c\u2029d\r\ne""#;
    assert!(stream.contains(escaped), "{stream}");
    assert_eq!(joined(&events(&stream)).0[0]["text"], prompt);
}
