//! What the server promises about fields: implemented, neutral, hints, unsupported, or unknown.

use asynclane_server::api::fields::promises::{HINTS, NEUTRAL, UNSUPPORTED};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::common::{MODEL, Options, Server, chat, completion, merge, server, server_with};

/// The status, the named fields and the answer.
async fn ask(server: &Server, path: &str, body: &Value) -> (StatusCode, Option<String>, Value) {
    let request = Request::post(path).body(Body::from(body.to_string()));
    let (status, headers, bytes) = server.call(request.unwrap()).await;
    let named = headers.get("x-ignored-fields");
    let named = named.map(|value| value.to_str().unwrap().to_owned());
    (status, named, serde_json::from_slice(&bytes).unwrap())
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn unknown_fields_are_named_on_every_endpoint() {
    let server = server();
    let response = json!({"model": MODEL, "input": "Hi", "max_output_tokens": 2});
    let message = json!({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 2});
    let bodies = [
        ("/v1/completions", completion(json!({"max_tokens": 2}))),
        (
            CHAT,
            chat(json!({"max_tokens": 2, "tools": [], "metadata": {}, "user": "u"})),
        ),
        ("/v1/responses", response),
        ("/v1/messages", message),
    ];
    for (path, mut body) in bodies {
        assert_eq!(ask(&server, path, &body).await.1, None, "{path}");
        body["foo"] = json!({"a": 1});
        body["bar.baz"] = json!(1);
        body["absent"] = Value::Null;
        body["white space"] = json!(1);
        let (status, named, _) = ask(&server, path, &body).await;
        assert_eq!(
            (status, named.as_deref()),
            (StatusCode::OK, Some("foo, bar.baz")),
            "{path}"
        );
    }
    // A stream names them too.
    let body = chat(json!({"stream": true, "max_tokens": 2, "foo": 1}));
    let request = Request::post(CHAT).body(Body::from(body.to_string()));
    let (_, headers, _) = server.call(request.unwrap()).await;
    assert_eq!(headers["x-ignored-fields"], "foo");
}

#[tokio::test]
async fn unknown_fields_may_be_refused() {
    let mut options = Options::default();
    options.settings.reject_unknown_fields = true;
    let server = server_with(options);
    let body = chat(json!({"max_tokens": 2, "foo": 1}));
    let (status, _, answer) = ask(&server, CHAT, &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["error"]["param"], "foo");
    assert_eq!(answer["error"]["code"], "unknown_parameter");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(!message.contains("did you mean"), "{message}");
    for (near, meant) in [("max_new_tokens", "max_tokens"), ("metdata", "metadata")] {
        let (_, _, answer) = ask(&server, CHAT, &chat(json!({near: 1}))).await;
        let message = answer["error"]["message"].as_str().unwrap();
        let start = format!("{near} does not exist (did you mean \"{meant}\"?)");
        assert!(message.starts_with(&start), "{message}");
    }
    let known = chat(json!({"max_tokens": 2, "foo": null, "metadata": {}, "top_k": 1}));
    assert_eq!(ask(&server, CHAT, &known).await.0, StatusCode::OK);
}

#[tokio::test]
async fn names_that_nearly_exist_get_a_suggestion() {
    let server = server();
    for (fields, meant) in [
        (json!({"diffusion": {"treshold": 0.5}}), "threshold"),
        (json!({"diffusion": {"preset": "balnced"}}), "balanced"),
        (json!({"diffusion": {"commit": "treshold"}}), "threshold"),
        (json!({"diffusion": {"refresh": "nevr"}}), "never"),
        (json!({"structured_outputs": {"regexp": "a"}}), "regex"),
        (
            json!({"response_format": {"type": "json-schema"}}),
            "json_schema",
        ),
        (json!({"tool_choice": "requierd"}), "required"),
        (
            json!({"messages": [{"role": "usr", "content": "Hi"}]}),
            "user",
        ),
    ] {
        let (status, _, answer) = ask(&server, CHAT, &chat(fields.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}");
        let message = answer["error"]["message"].as_str().unwrap();
        let hint = format!("(did you mean \"{meant}\"?)");
        assert!(message.contains(&hint), "{message}");
    }
}

#[tokio::test]
async fn neutral_fields_have_no_effect() {
    let server = server();
    let (_, _, plain) = ask(&server, CHAT, &chat(json!({"max_tokens": 4}))).await;
    for field in NEUTRAL {
        let body = chat(json!({"max_tokens": 4, field: "x"}));
        let (status, named, answer) = ask(&server, CHAT, &body).await;
        assert_eq!((status, named), (StatusCode::OK, None), "{field}: {answer}");
        assert_eq!(answer["choices"], plain["choices"], "{field}");
    }
}

#[tokio::test]
async fn hints_are_accepted_with_any_value_and_named() {
    let mut options = Options::default();
    options.settings.reject_unknown_fields = true;
    for server in [server(), server_with(options)] {
        for field in HINTS {
            for value in [
                json!("high"),
                json!("x"),
                json!(2),
                json!({"a": []}),
                json!(true),
            ] {
                let body = chat(json!({"max_tokens": 2, field: value}));
                let (status, named, answer) = ask(&server, CHAT, &body).await;
                assert_eq!(
                    (status, named.as_deref()),
                    (StatusCode::OK, Some(field)),
                    "{field} {value}: {answer}"
                );
            }
            let body = completion(json!({"max_tokens": 2, field: "high"}));
            let (status, named, _) = ask(&server, "/v1/completions", &body).await;
            assert_eq!((status, named.as_deref()), (StatusCode::OK, Some(field)));
            let body = chat(json!({"max_tokens": 2, field: null}));
            assert_eq!(ask(&server, CHAT, &body).await.1, None, "{field}");
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
        json!({"stop_token_ids": [1.0], "diffusion": {"block_length": 8.0}}),
    ] {
        let body = chat(merge(fields.clone(), json!({"max_tokens": 2.0})));
        let (status, named, answer) = ask(&server, CHAT, &body).await;
        assert_eq!(
            (status, named),
            (StatusCode::OK, None),
            "{fields}: {answer}"
        );
        let choice = &answer["choices"][0];
        assert!(choice["logprobs"].is_null(), "{choice}");
    }
    let ids = [json!([7, 8]), json!([7.0, 8.0]), json!([[7, 8.0]])];
    for ids in ids {
        let fields = json!({"prompt": ids, "return_token_ids": true, "max_tokens": 1});
        let answer = server.complete(fields).await;
        assert_eq!(answer["choices"][0]["prompt_token_ids"], json!([7, 8]));
    }
    for (fields, param) in [
        (json!({"prompt": [7.5]}), "prompt[0]"),
        (
            json!({"diffusion": {"block_length": 8.5}}),
            "diffusion.block_length",
        ),
    ] {
        let (status, _, answer) = ask(&server, "/v1/completions", &completion(fields)).await;
        assert_eq!(
            (status, &answer["error"]["param"]),
            (StatusCode::BAD_REQUEST, &json!(param))
        );
    }
}

#[tokio::test]
async fn unsupported_fields_are_refused_unless_they_ask_for_nothing() {
    let server = server();
    let on_chats = ["logprobs", "top_logprobs"];
    for (field, neutral) in UNSUPPORTED {
        if on_chats.contains(&field) {
            continue;
        }
        let body = |value: Value| chat(json!({"max_tokens": 2, field: value}));
        let (status, _, answer) = ask(&server, CHAT, &body(json!("asked"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(answer["error"]["param"], field, "{answer}");
        assert_eq!(answer["error"]["code"], "unsupported_parameter", "{answer}");
        for value in neutral
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
        {
            let (status, named, answer) = ask(&server, CHAT, &body(value)).await;
            assert_eq!((status, named), (StatusCode::OK, None), "{field}: {answer}");
        }
        let (status, named, _) = ask(&server, CHAT, &body(Value::Null)).await;
        assert_eq!((status, named), (StatusCode::OK, None), "{field}");
    }
    let long = chat(json!({"chat_template": "x".repeat(100_000)}));
    assert_eq!(ask(&server, CHAT, &long).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn older_names_of_structured_output_are_followed() {
    let server = server();
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]});
    let cases = [
        (json!({"guided_regex": "[ab]{3}"}), "regex"),
        (json!({"guided_choice": ["abc", "abd"]}), "choice"),
        (json!({"guided_grammar": "start: \"abc\""}), "grammar"),
        (json!({"ebnf": "start: \"abc\""}), "ebnf"),
        (json!({"guided_json": schema}), "json"),
        (json!({"guided_json": schema.to_string()}), "json"),
    ];
    for (fields, kind) in cases {
        let answer = server.chat(fields.clone()).await;
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        match kind {
            "json" => {
                let value: Value = serde_json::from_str(text).unwrap();
                assert!([1, 2].contains(&value["x"].as_i64().unwrap()), "{text}");
            }
            _ => assert!(
                text.len() == 3 && text.starts_with(['a', 'b']),
                "{fields}: {text}"
            ),
        }
        let field = fields.as_object().unwrap().keys().next().unwrap();
        let twice = chat(json!({field: fields[field], "regex": "a"}));
        assert_eq!(
            ask(&server, CHAT, &twice).await.0,
            StatusCode::BAD_REQUEST,
            "{field}"
        );
    }
}

#[tokio::test]
async fn a_schema_that_is_no_json_says_why() {
    let body = chat(json!({"guided_json": "{\"type\": \"object\",}"}));
    let (status, _, answer) = ask(&server(), CHAT, &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer["error"]["message"],
        "guided_json must be the text of a JSON object: trailing comma at line 1 column 19"
    );
}

#[tokio::test]
async fn objects_are_closed_unless_they_are_open_by_setting() {
    let schema = json!({"type": "object", "properties": {"x": {"enum": [1]}}});
    let format = |strict: bool| {
        json!({"max_tokens": 60, "temperature": 1.5, "seed": 4, "response_format":
            {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}})
    };
    let text = |answer: &Value| {
        answer["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let closed = ["{}", "{\"x\": 1}", "{\"x\":1}"];
    let server = server();
    for strict in [false, true] {
        let answer = text(&server.chat(format(strict)).await);
        assert!(closed.contains(&answer.as_str()), "{answer}");
    }
    let mut options = Options::default();
    options.formats.open_objects = true;
    let server = server_with(options);
    let answer = text(&server.chat(format(true)).await);
    assert!(closed.contains(&answer.as_str()), "{answer}");
    let open = (0..8).map(|seed| {
        let mut fields = format(false);
        fields["seed"] = json!(seed);
        fields
    });
    let mut others = 0;
    for fields in open {
        others += usize::from(!closed.contains(&text(&server.chat(fields).await).as_str()));
    }
    assert!(others > 0, "an open object has other members too");
}
