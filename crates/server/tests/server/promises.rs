//! The server's promises about fields: implemented, neutral, hints, unsupported, or unknown.

use asynclane_server::api::fields::promises::{HINTS, NEUTRAL, UNSUPPORTED};

use crate::common::*;

/// The answer to a request that must succeed, and the ignored fields that its header names.
async fn ask(server: &Server, path: &str, fields: Value) -> (Option<String>, Value) {
    let budget = match path {
        RESPONSES => json!({"max_output_tokens": 2}),
        _ => json!({"max_tokens": 2}),
    };
    let (answer, named) = server.ask_named(path, merge(budget, fields)).await;
    (named, answer)
}

fn strict() -> Server {
    server_where(|options| options.settings.reject_unknown_fields = true)
}

/// The endpoints that generate nothing, with a body of each.
fn paths_of_counts() -> [(&'static str, Value); 5] {
    rows! {
        "/tokenize", json!({"prompt": "Hi", "echo": true, "temperature": 1});
        "/tokenize", chat(json!({"max_tokens": 4, "top_k": 3}));
        "/detokenize", json!({"tokens": [7]});
        COUNT, json!({"max_tokens": 4, "stop_sequences": ["a"], "top_k": 3});
        INPUT_TOKENS, body(RESPONSES, json!({"temperature": 1, "stream": true}));
    }
}

#[tokio::test]
async fn unknown_fields_are_named_on_every_endpoint() {
    let server = server();
    let unknown = json!({"foo": {"a": 1}, "bar.baz": 1, "absent": null, "white space": 1});
    for path in [COMPLETIONS, CHAT, RESPONSES, MESSAGES] {
        let known = json!({"tools": [], "metadata": {}, "user": "u"});
        assert_eq!(ask(&server, path, known).await.0, None, "{path}");
        let (named, _) = ask(&server, path, unknown.clone()).await;
        assert_eq!(named.as_deref(), Some("foo, bar.baz"), "{path}");
    }
    for (path, known) in paths_of_counts() {
        let (_, named) = server.ask_named(path, merge(known.clone(), unknown.clone())).await;
        assert_eq!(named.as_deref(), Some("foo, bar.baz"), "{path}");
        // Fields of the generation that is counted are known.
        let known = merge(known, json!({"user": "u", "metadata": {}}));
        assert_eq!(server.ask_named(path, known).await.1, None, "{path}");
    }
    // A stream names them too.
    let (named, _) = ask(&server, CHAT, json!({"stream": true, "foo": 1})).await;
    assert_eq!(named.as_deref(), Some("foo"));
}

#[tokio::test]
async fn unknown_fields_may_be_refused() {
    let server = strict();
    let code = "unknown_parameter";
    let message = server.refused(CHAT, &json!({"foo": 1}), code, "foo").await;
    assert!(!message.contains("did you mean"), "{message}");
    for (near, meant) in [("max_new_tokens", "max_tokens"), ("metdata", "metadata")] {
        let message = server.refused(CHAT, &json!({near: 1}), code, near).await;
        let start = format!("{near} does not exist (did you mean \"{meant}\"?)");
        assert!(message.starts_with(&start), "{message}");
    }
    for (path, known) in paths_of_counts() {
        let code = if path == COUNT { "invalid_request_error" } else { code };
        server.refused(path, &merge(known, json!({"foo": 1})), code, "foo").await;
    }
    let known = json!({"foo": null, "metadata": {}, "top_k": 1});
    ask(&server, CHAT, known).await;
}

#[tokio::test]
async fn names_that_nearly_exist_get_a_suggestion() {
    let server = server();
    for (fields, meant) in rows! {
        json!({"diffusion": {"treshold": 0.5}}), "threshold";
        json!({"diffusion": {"preset": "balnced"}}), "balanced";
        json!({"diffusion": {"commit": "treshold"}}), "threshold";
        json!({"diffusion": {"refresh": "nevr"}}), "never";
        json!({"diffusion": {"canvas": [{"opne": 1}]}}), "open";
        json!({"structured_outputs": {"regexp": "a"}}), "regex";
        json!({"response_format": {"type": "json-schema"}}), "json_schema";
        json!({"tool_choice": "requierd"}), "required";
        json!({"messages": [{"role": "usr", "content": "Hi"}]}), "user";
    } {
        let (status, answer) = server.post(CHAT, &body(CHAT, fields)).await;
        assert_eq!(status, 400, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        let hint = format!("(did you mean \"{meant}\"?)");
        assert!(message.contains(&hint), "{message}");
    }
}

#[tokio::test]
async fn neutral_fields_have_no_effect() {
    let server = server();
    let (_, plain) = ask(&server, CHAT, json!({})).await;
    for field in NEUTRAL {
        let (named, answer) = ask(&server, CHAT, json!({field: "x"})).await;
        assert_eq!(named, None, "{field}: {answer}");
        assert_eq!(answer["choices"], plain["choices"], "{field}");
    }
}

#[tokio::test]
async fn hints_are_accepted_with_any_value_and_named() {
    let values = [json!("x"), json!(2), json!({"a": []}), json!(true)];
    for server in [server(), strict()] {
        for field in HINTS {
            for value in &values {
                let (named, _) = ask(&server, CHAT, json!({field: value})).await;
                assert_eq!(named.as_deref(), Some(field), "{value}");
            }
            for path in [COMPLETIONS, CHAT] {
                let (named, _) = ask(&server, path, json!({field: "high"})).await;
                assert_eq!(named.as_deref(), Some(field), "{path}");
            }
            let (named, _) = ask(&server, CHAT, json!({field: null})).await;
            assert_eq!(named, None, "{field}");
        }
    }
}

#[tokio::test]
async fn values_that_ask_for_nothing_are_accepted_however_they_are_written() {
    let server = server();
    for fields in [
        json!({"top_logprobs": 0}),
        json!({"top_logprobs": 0, "logprobs": false}),
        json!({"top_logprobs": 0.0, "n": 1.0, "best_of": 1.0, "n_keep": 0.0}),
        json!({"xtc_probability": 0.0, "typical_p": 1.0, "repeat_penalty": 1}),
        json!({"seed": 7.0, "top_k": -1.0, "min_tokens": 0.0, "priority": -2.0}),
        json!({"stop_token_ids": [1.0], "diffusion": {"block_length": 8.0}, "max_tokens": 2.0}),
    ] {
        let (named, answer) = ask(&server, CHAT, fields.clone()).await;
        assert_eq!(named, None, "{fields}: {answer}");
        assert!(answer["choices"][0]["logprobs"].is_null(), "{answer}");
    }
    for ids in [json!([7, 8]), json!([7.0, 8.0]), json!([[7, 8.0]])] {
        let fields = json!({"prompt": ids, "return_token_ids": true, "max_tokens": 1});
        let answer = server.complete(fields).await;
        has!(answer, {"choices": [{"prompt_token_ids": [7, 8]}]});
    }
}

#[tokio::test]
async fn unsupported_fields_are_refused_unless_they_ask_for_nothing() {
    let server = server();
    for (field, neutral) in UNSUPPORTED {
        let on_chats = [
            "logprob_token_ids",
            "logprobs",
            "prediction",
            "return_tokens_as_token_ids",
            "top_logprobs",
        ];
        if on_chats.contains(&field) {
            continue;
        }
        let asked = json!({field: "asked"});
        let case = (asked, "unsupported_parameter", field);
        server.refuses(CHAT, &[case]).await;
        for value in neutral.iter().chain(&["null"]) {
            let value: Value = serde_json::from_str(value).unwrap();
            let (named, _) = ask(&server, CHAT, json!({field: value})).await;
            assert_eq!(named, None, "{field}");
        }
    }
    let long = refusals! {
        {"chat_template": "x".repeat(100_000)} => unsupported_parameter "chat_template";
    };
    server.refuses(CHAT, &long).await;
}

#[tokio::test]
async fn older_names_of_structured_output_are_followed() {
    let server = server();
    for (field, value) in rows! {
        "guided_regex", json!("[ab]{3}"); "guided_choice", json!(["abc", "abd"]);
        "guided_grammar", json!("start: \"abc\""); "ebnf", json!("start: \"abc\"");
    } {
        let answer = server.chat(json!({field: value})).await;
        let text = text(&answer);
        assert!(text.len() == 3 && text.starts_with(['a', 'b']), "{text}");
        let twice = body(CHAT, json!({field: value, "regex": "a"}));
        assert_eq!(server.post(CHAT, &twice).await.0, 400, "{field}");
    }
    let twice = body(CHAT, json!({"guided_json": {}, "regex": "a"}));
    assert_eq!(server.post(CHAT, &twice).await.0, 400);
    let comma = json!({"guided_json": "{\"type\": \"object\",}"});
    let refused = server.refused(CHAT, &comma, "invalid_value", "guided_json");
    let message = refused.await;
    let start = "guided_json must be the text of a JSON object: ";
    let reason = message.strip_prefix(start).unwrap();
    assert_eq!(reason, "trailing comma at line 1 column 19");
}

#[tokio::test]
async fn objects_are_closed_unless_they_are_open_by_setting() {
    let schema = json!({"type": "object", "properties": {"x": {"enum": [1]}}});
    let is_closed = async |server: &Server, strict: bool, seed: u32| {
        let format = json!({"type": "json_schema",
            "json_schema": {"name": "x", "schema": schema, "strict": strict}});
        let answer = ask!(server, CHAT {"max_tokens": 60, "temperature": 1.5,
            "seed": seed, "response_format": format});
        ["{}", "{\"x\": 1}", "{\"x\":1}"].contains(&text(&answer))
    };
    let closed = server();
    assert!(is_closed(&closed, false, 4).await && is_closed(&closed, true, 4).await);
    let open = server_where(|options| options.formats.open_objects = true);
    assert!(is_closed(&open, true, 4).await);
    let mut others = 0;
    for seed in 0..8 {
        others += usize::from(!is_closed(&open, false, seed).await);
    }
    assert!(others > 0, "an open object has other members too");
}
