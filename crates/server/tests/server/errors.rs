//! The error table, row by row: status, type, code, param, and what messages may hold.

use crate::common::{CONTEXT, MODEL, Options, Server, chat, completion, server, server_with};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Checks the shape of an error and returns its code and param.
fn fault(answer: &Value) -> (String, Option<String>) {
    let error = answer["error"]
        .as_object()
        .unwrap_or_else(|| panic!("no error: {answer}"));
    let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"]);
    let message = error["message"].as_str().unwrap();
    assert!(
        !message.is_empty() && message.chars().count() <= 500,
        "{message}"
    );
    let param = error["param"].as_str().map(str::to_owned);
    if let Some(param) = &param {
        assert!(
            message.contains(param.as_str()),
            "{message} does not name {param}"
        );
    }
    (error["code"].as_str().unwrap().to_owned(), param)
}

async fn refused(server: &Server, path: &str, body: &Value) -> (String, Option<String>) {
    let (status, answer) = server.post(path, body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body} → {answer}");
    assert_eq!(answer["error"]["type"], "invalid_request_error");
    fault(&answer)
}

async fn assert_refused(server: &Server, path: &str, code: &str, cases: &[(Value, &str)]) {
    for (fields, param) in cases {
        let body = if path == CHAT {
            chat(fields.clone())
        } else {
            completion(fields.clone())
        };
        let found = refused(server, path, &body).await;
        assert_eq!(
            found,
            (code.to_owned(), Some((*param).to_owned())),
            "{fields}"
        );
    }
}

#[tokio::test]
async fn bodies_other_than_objects_are_invalid_json() {
    let server = server();
    let deep = "[".repeat(2000) + &"]".repeat(2000);
    let deep = format!(r#"{{"model":"m","prompt":{deep}}}"#);
    let cases: [&[u8]; 13] = [
        b"",
        b"  ",
        b"[]",
        b"\"x\"",
        b"{",
        b"{} x",
        b"{\"prompt\": NaN}",
        b"{\"prompt\": 1e999}",
        b"{\"prompt\": \"\\ud800\"}",
        b"{\"prompt\": \"\xff\"}",
        b"{\"a\": 1, \"a\": 2}",
        b"\xef\xbb\xbf{}",
        deep.as_bytes(),
    ];
    for body in cases {
        let (status, answer) = server.raw(Method::POST, COMPLETIONS, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(
            fault(&answer),
            ("invalid_json".to_owned(), None),
            "{body:?}"
        );
    }
}

#[tokio::test]
async fn required_fields_are_missed() {
    let server = server();
    let code = "missing_required_parameter";
    let cases = [
        (json!({"model": null}), "model"),
        (json!({"prompt": null}), "prompt"),
    ];
    assert_refused(&server, COMPLETIONS, code, &cases).await;
    let cases = [
        (json!({"model": null}), "model"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": null}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
            "messages[0].content[0].text",
        ),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "response_format.json_schema.schema",
        ),
    ];
    assert_refused(&server, CHAT, code, &cases).await;
}

#[tokio::test]
async fn types_are_strict() {
    let server = server();
    let cases = [
        (json!({"model": 7}), "model"),
        (json!({"prompt": 7}), "prompt"),
        (json!({"prompt": ["a", 1]}), "prompt[1]"),
        (json!({"prompt": [1, "a"]}), "prompt[1]"),
        (json!({"prompt": [1, 2.5]}), "prompt[1]"),
        (json!({"prompt": [[7], "a"]}), "prompt[1]"),
        (json!({"prompt": [true]}), "prompt[0]"),
        (json!({"max_tokens": "8"}), "max_tokens"),
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"max_tokens": true}), "max_tokens"),
        (json!({"temperature": "1"}), "temperature"),
        (json!({"stream": 1}), "stream"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"priority": "1"}), "priority"),
        (json!({"stop": 1}), "stop"),
        (json!({"stop": ["a", 1]}), "stop[1]"),
        (json!({"stop_token_ids": [1, "2"]}), "stop_token_ids[1]"),
        (
            json!({"stream": true, "stream_options": {"include_usage": 1}}),
            "stream_options.include_usage",
        ),
        (json!({"user": 1}), "user"),
        (json!({"diffusion": []}), "diffusion"),
        (
            json!({"diffusion": {"threshold": "0.9"}}),
            "diffusion.threshold",
        ),
        (
            json!({"diffusion": {"threshold": [0.9]}}),
            "diffusion.threshold",
        ),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"logit_bias": {"7": "1"}}), "logit_bias.7"),
        (json!({"tools": [1]}), "tools[0]"),
        (json!({"echo": 1}), "echo"),
        (json!({"add_special_tokens": 1}), "add_special_tokens"),
        (json!({"suffix": 1}), "suffix"),
    ];
    assert_refused(&server, COMPLETIONS, "invalid_type", &cases).await;
    let cases = [
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": ["x"]}), "messages[0]"),
        (json!({"messages": [{"role": 1}]}), "messages[0].role"),
        (
            json!({"messages": [{"role": "user", "content": 1}]}),
            "messages[0].content",
        ),
        (json!({"logprobs": 1}), "logprobs"),
        (
            json!({"max_completion_tokens": "1"}),
            "max_completion_tokens",
        ),
    ];
    assert_refused(&server, CHAT, "invalid_type", &cases).await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn values_are_in_range() {
    let server = server();
    let cases = [
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": [[]]}), "prompt[0]"),
        (json!({"prompt": [[1, 842]]}), "prompt[0][1]"),
        (json!({"prompt": [-1]}), "prompt[0]"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_tokens": -1e30}), "max_tokens"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": 2.01}), "temperature"),
        (json!({"top_p": 1.1}), "top_p"),
        (json!({"min_p": -0.1}), "min_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"priority": 1_i64 << 31}), "priority"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"seed": 1e300}), "seed"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": vec!["a"; 65]}), "stop"),
        (json!({"stop": ["a", "x".repeat(1025)]}), "stop[1]"),
        (json!({"stop_token_ids": [842]}), "stop_token_ids[0]"),
        (json!({"min_tokens": -1}), "min_tokens"),
        (json!({"min_tokens": 17}), "min_tokens"),
        (json!({"prompt": vec!["a"; 1025]}), "prompt"),
        (json!({"prompt": vec!["a"; 9], "n": 128}), "n"),
        (json!({"stream_options": {}}), "stream_options"),
        (json!({"logprobs": 21}), "logprobs"),
        (json!({"best_of": 1, "n": 2}), "best_of"),
        (json!({"logit_bias": {"842": 1}}), "logit_bias.842"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias.x"),
        (json!({"logit_bias": {"07": 1}}), "logit_bias.07"),
        (json!({"logit_bias": {"+7": 1}}), "logit_bias.+7"),
        (
            json!({"truncate_prompt_tokens": 0}),
            "truncate_prompt_tokens",
        ),
        (json!({"logit_bias": {"7": 101}}), "logit_bias.7"),
        (json!({"frequency_penalty": 3}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (
            json!({"response_format": {"type": "xml"}}),
            "response_format.type",
        ),
        (json!({"tool_choice": "some"}), "tool_choice"),
        (
            json!({"diffusion": {"threshold": 1.5}}),
            "diffusion.threshold",
        ),
        (
            json!({"diffusion": {"schedule": "diagonal"}}),
            "diffusion.schedule",
        ),
        (
            json!({"diffusion": {"schedule": "block_wise", "lookahead": 3}}),
            "diffusion.lookahead",
        ),
    ];
    assert_refused(&server, COMPLETIONS, "invalid_value", &cases).await;
    let cases = [
        (json!({"messages": []}), "messages"),
        (
            json!({"messages": [{"role": "function", "content": "x"}]}),
            "messages[0].role",
        ),
        (
            json!({"messages": [{"role": "user", "content": []}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages[0].content[0].type",
        ),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (
            json!({"continue_final_message": true}),
            "continue_final_message",
        ),
    ];
    assert_refused(&server, CHAT, "invalid_value", &cases).await;
}

#[tokio::test]
async fn unknown_and_unsupported_fields_are_named() {
    let server = server();
    let unknown = [(json!({"diffusion": {"treshold": 1}}), "diffusion.treshold")];
    assert_refused(&server, COMPLETIONS, "unknown_parameter", &unknown).await;
    let values = [
        (json!({"tools": [{}]}), "tools"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {}}), "tool_choice"),
        (json!({"echo": true, "logprobs": 1}), "echo"),
    ];
    assert_refused(&server, COMPLETIONS, "unsupported_value", &values).await;
}

#[tokio::test]
async fn checks_come_in_order() {
    let server = server();
    let first = async |fields: Value| refused(&server, COMPLETIONS, &completion(fields)).await.0;
    let mut fields = json!({"temperature": 9, "min_tokens": 99, "tools": [{}]});
    assert_eq!(first(fields.clone()).await, "invalid_value");
    fields["temperature"] = json!(0);
    assert_eq!(first(fields.clone()).await, "invalid_value");
    fields["min_tokens"] = json!(0);
    fields["model"] = json!("other");
    fields["max_tokens"] = json!(100_000);
    assert_eq!(first(fields.clone()).await, "unsupported_value");
    fields["tools"] = Value::Null;
    let (status, answer) = server.post(COMPLETIONS, &completion(fields.clone())).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(
        fault(&answer),
        ("model_not_found".to_owned(), Some("model".to_owned()))
    );
    fields["model"] = json!(MODEL);
    assert_eq!(first(fields).await, "context_length_exceeded");
}

#[tokio::test]
async fn the_context_is_a_limit() {
    let server = server();
    let ids = |count: u32| vec![9; count as usize];
    let code = "context_length_exceeded";
    let cases = [
        (json!({"prompt": ids(CONTEXT + 1)}), "prompt"),
        (
            json!({"prompt": ids(CONTEXT), "max_tokens": 1}),
            "max_tokens",
        ),
        (json!({"max_tokens": CONTEXT}), "max_tokens"),
        (json!({"max_tokens": 10_000_000_000_u64}), "max_tokens"),
    ];
    assert_refused(&server, COMPLETIONS, code, &cases).await;
    let long = "egg ".repeat(2000);
    let cases = [
        (
            json!({"messages": [{"role": "user", "content": long}]}),
            "messages",
        ),
        (
            json!({"max_completion_tokens": CONTEXT}),
            "max_completion_tokens",
        ),
        (json!({"max_tokens": CONTEXT}), "max_tokens"),
    ];
    assert_refused(&server, CHAT, code, &cases).await;
    let full = server
        .complete(json!({"prompt": ids(CONTEXT), "max_tokens": 0}))
        .await;
    assert_eq!(full["usage"]["prompt_tokens"], CONTEXT);
}

#[tokio::test]
async fn paths_and_methods_have_error_objects() {
    let server = server();
    let (status, answer) = server.raw(Method::GET, "/v1/embeddings", b"").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(fault(&answer).0, "unknown_url");
    let (status, answer) = server.raw(Method::GET, COMPLETIONS, b"").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(fault(&answer).0, "method_not_allowed");
    for path in ["/v1/models/none", "/v1/models/%ff"] {
        let (status, answer) = server.raw(Method::GET, path, b"").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(fault(&answer).0, "model_not_found");
    }
}

#[tokio::test]
async fn bodies_have_a_type_and_a_size() {
    let mut options = crate::common::Options::default();
    options.settings.limits.max_body_bytes = 1000;
    let server = crate::common::server_with(options);
    let with = async |header: (&str, &str), body: Body| {
        let request = Request::post(COMPLETIONS).header(header.0, header.1);
        let (status, _, bytes) = server.call(request.body(body).unwrap()).await;
        (status, fault(&serde_json::from_slice(&bytes).unwrap()).0)
    };
    let body = || Body::from(completion(json!({})).to_string());
    let unsupported = (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type".to_owned(),
    );
    assert_eq!(
        with(("content-type", "text/plain"), body()).await,
        unsupported
    );
    assert_eq!(
        with(("content-encoding", "gzip"), body()).await,
        unsupported
    );
    assert_eq!(
        with(("content-encoding", "identity, gzip"), body()).await,
        unsupported
    );
    let too_large = (
        StatusCode::PAYLOAD_TOO_LARGE,
        "request_too_large".to_owned(),
    );
    let long = "x".repeat(1001);
    assert_eq!(
        with(("accept", "*/*"), Body::from(long.clone())).await,
        too_large
    );
    let declared = with(("content-length", "1001"), Body::empty()).await;
    assert_eq!(declared, too_large);
    let chunked = futures_util::stream::iter(
        long.into_bytes()
            .chunks(300)
            .map(|chunk| Ok::<_, std::convert::Infallible>(chunk.to_vec()))
            .collect::<Vec<_>>(),
    );
    assert_eq!(
        with(("accept", "*/*"), Body::from_stream(chunked)).await,
        too_large
    );
    for accepted in ["application/json", "Application/JSON; charset=utf-8"] {
        let request = Request::post(COMPLETIONS).header("content-type", accepted);
        assert_eq!(
            server.call(request.body(body()).unwrap()).await.0,
            StatusCode::OK
        );
    }
    for accepted in ["identity", "Identity"] {
        let request = Request::post(COMPLETIONS).header("content-encoding", accepted);
        let (status, ..) = server.call(request.body(body()).unwrap()).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn late_bodies_time_out() {
    let silent = futures_util::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>();
    let request = Request::post(COMPLETIONS)
        .body(Body::from_stream(silent))
        .unwrap();
    let (status, _, bytes) = server().call(request).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(
        fault(&serde_json::from_slice(&bytes).unwrap()).0,
        "request_timeout"
    );
}

#[tokio::test]
async fn little_of_the_input_comes_back() {
    let server = server();
    let long = "\u{1F600}".repeat(5000);
    let name = |fields: Value| completion(fields);
    let bodies = [
        name(json!({"model": long})),
        name(json!({"diffusion": {long.clone(): 1}})),
        name(json!({"diffusion": {"schedule": long}})),
        name(json!({"tool_choice": long})),
        name(json!({"response_format": {"type": long}})),
        name(json!({"logit_bias": {long.clone(): 1}})),
    ];
    for body in bodies {
        let (_, answer) = server.post(COMPLETIONS, &body).await;
        fault(&answer);
        let message = answer["error"]["message"].as_str().unwrap();
        let copied = message
            .chars()
            .filter(|character| *character == '\u{1F600}')
            .count();
        assert!((1..=64).contains(&copied), "{message}");
    }
    let body = chat(json!({"messages": [{"role": long, "content": "x"}]}));
    let (_, answer) = server.post(CHAT, &body).await;
    assert_eq!(fault(&answer).1.unwrap(), "messages[0].role");
}

#[tokio::test]
async fn a_failed_step_is_an_internal_error() {
    let options = crate::common::Options {
        failing: vec![0],
        ..crate::common::Options::default()
    };
    let server = crate::common::server_with(options);
    let (status, answer) = server.post(COMPLETIONS, &completion(json!({}))).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(fault(&answer), ("internal_error".to_owned(), None));
    assert_eq!(answer["error"]["type"], "server_error");
    assert!(!answer.to_string().contains("told to fail"));
    server.complete(json!({})).await;
}

#[tokio::test]
async fn a_loading_server_says_so() {
    let router = asynclane_server::router(asynclane_server::AppState::new(
        asynclane_server::Settings::default(),
    ));
    let get = async |path: &str, method: Method| {
        use http_body_util::BodyExt;
        use tower::ServiceExt;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (
            parts.status,
            parts.headers,
            body.collect().await.unwrap().to_bytes(),
        )
    };
    assert_eq!(get("/health", Method::GET).await.0, StatusCode::OK);
    assert_eq!(get("/version", Method::GET).await.0, StatusCode::OK);
    for (path, method) in [
        ("/ready", Method::GET),
        (COMPLETIONS, Method::POST),
        ("/v1/models", Method::GET),
    ] {
        let (status, headers, body) = get(path, method).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(headers.contains_key("retry-after"));
        assert_eq!(fault(&serde_json::from_slice(&body).unwrap()).0, "loading");
    }
}

#[tokio::test]
async fn a_chat_that_the_template_cannot_hold_says_why_and_one_that_it_refuses_says_what_it_says() {
    let server = server_with(Options {
        template: Some(
            "{% for m in messages %}{% if m.role == 'system' %}\n{{ 'a' + 1 }}{% endif %}\
             {% if m.content == 'x' %}{{ raise_exception('no x') }}{% endif %}{% endfor %}\
             {{ strftime_now('%d %b %Y') }}",
        ),
        ..Options::default()
    });
    let with =
        |role: &str, content: &str| json!({"messages": [{"role": role, "content": content}]});
    for (fields, expected) in [
        (
            with("system", "a"),
            "messages cannot be put into the chat template: chat_template.jinja: line 2: ",
        ),
        (
            with("user", "x"),
            "messages was refused by the chat template: no x",
        ),
        (
            json!({"chat_template_kwargs": {"strftime_now": "soon"}}),
            "messages was refused by the chat template: strftime_now: expected a date such as ",
        ),
    ] {
        let (status, answer) = server.post(CHAT, &chat(fields)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(expected), "{message}");
    }
    let dated = json!({"chat_template_kwargs": {"strftime_now": "2024-07-26"}});
    let (status, answer) = server.post(CHAT, &chat(dated)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}
