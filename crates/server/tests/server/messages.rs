//! Anthropic's Messages: the same answers as chats, in its own objects, events and errors.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use text::ReasoningFormat;

use crate::common::translated::{MESSAGES, wide_server};
use crate::common::{MODEL, Options, named_events, server_with};

const COUNT: &str = "/v1/messages/count_tokens";

fn tool() -> Value {
    json!({"name": "add", "description": "Adds.", "input_schema": {"type": "object",
        "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}})
}

#[tokio::test]
async fn a_text_is_the_answer_of_a_chat() {
    let server = wide_server();
    let chat = json!({"max_tokens": 60, "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"}]});
    let chat = server.chat(chat).await;
    let text = &chat["choices"][0]["message"]["content"];
    let blocks = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]);
    let system =
        json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
    for fields in [
        json!({"system": "Be brief."}),
        json!({"system": system, "messages": blocks, "metadata": {"user_id": "u"}}),
    ] {
        let answer = MESSAGES.ask(&server, fields).await;
        assert!(answer["id"].as_str().unwrap().starts_with("msg-"));
        assert_eq!(
            (&answer["type"], &answer["role"]),
            (&json!("message"), &json!("assistant"))
        );
        assert_eq!(answer["content"][0]["text"], *text);
        let is_cut = chat["choices"][0]["finish_reason"] == "length";
        assert_eq!(
            answer["stop_reason"],
            if is_cut { "max_tokens" } else { "end_turn" }
        );
        assert_eq!(
            answer["usage"]["input_tokens"],
            chat["usage"]["prompt_tokens"]
        );
        assert_eq!(
            answer["usage"]["output_tokens"],
            chat["usage"]["completion_tokens"]
        );
    }
}

#[tokio::test]
async fn a_stop_sequence_is_named() {
    let server = wide_server();
    let grammar = "start: \"one two three\"";
    let answer = MESSAGES
        .ask(
            &server,
            json!({"grammar": grammar, "stop_sequences": ["zzz", " thr"]}),
        )
        .await;
    assert_eq!(answer["content"][0]["text"], "one two");
    assert_eq!(answer["stop_reason"], "stop_sequence");
    assert_eq!(answer["stop_sequence"], " thr");
}

#[tokio::test]
async fn a_loop_of_calls_goes_through() {
    let server = wide_server();
    let tools = json!([tool()]);
    for kind in ["any", "tool"] {
        let choice = json!({"type": kind, "name": "add", "disable_parallel_tool_use": true});
        let first = MESSAGES
            .ask(&server, json!({"tools": tools, "tool_choice": choice}))
            .await;
        assert_eq!(first["stop_reason"], "tool_use");
        let call = &first["content"][0];
        assert_eq!(
            (&call["type"], &call["name"]),
            (&json!("tool_use"), &json!("add"))
        );
        assert!((1..=3).contains(&call["input"]["a"].as_i64().unwrap()));
        let messages = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "7"}]},
                {"type": "text", "text": "So?"},
            ]},
        ]);
        let fields = json!({"messages": messages, "tools": tools, "tool_choice": {"type": "none"}});
        let second = MESSAGES.ask(&server, fields).await;
        assert_eq!(second["content"][0]["type"], "text");
    }
}

#[tokio::test]
async fn a_schema_is_followed() {
    let server = wide_server();
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]});
    let format = json!({"type": "json_schema", "schema": schema});
    for fields in [
        json!({"output_config": {"format": format}}),
        json!({"output_format": format}),
        json!({"output_config": {"format": format, "effort": "low"}, "tools": [tool()],
            "tool_choice": {"type": "none"}}),
    ] {
        let answer = MESSAGES.ask(&server, fields.clone()).await;
        let text = answer["content"][0]["text"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(
            [json!({"x": 1}), json!({"x": 2})].contains(&value),
            "{fields}: {text}"
        );
    }
    server.until_idle().await;
}

/// The types of the events of a stream, repeated deltas once.
fn kinds(events: &[(String, Value)]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for (name, event) in events {
        assert_eq!(event["type"], **name);
        if !(name == "content_block_delta" && kinds.last() == Some(name)) {
            kinds.push(name.clone());
        }
    }
    kinds
}

#[tokio::test]
async fn the_events_of_a_text_and_of_a_call_come_in_order() {
    let server = wide_server();
    let tools = json!({"tools": [tool()], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let grammar = json!({"grammar": "start: \"Hello you\""});
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    for (fields, reason) in [(tools, "tool_use"), (grammar, "end_turn")] {
        let plain = MESSAGES.ask(&server, fields.clone()).await;
        let mut streamed = MESSAGES.body(&fields);
        streamed["stream"] = json!(true);
        let events = named_events(&server.stream(MESSAGES.path, &streamed).await);
        assert_eq!(kinds(&events), expected);
        let start = &events[0].1["message"];
        assert_eq!(
            (&start["content"], &start["stop_reason"]),
            (&json!([]), &Value::Null)
        );
        let mut said = String::new();
        for (_, event) in events
            .iter()
            .filter(|(name, _)| name == "content_block_delta")
        {
            let delta = &event["delta"];
            said += delta["text"]
                .as_str()
                .or(delta["partial_json"].as_str())
                .unwrap();
        }
        match reason {
            "end_turn" => assert_eq!(plain["content"][0]["text"], said),
            _ => {
                let input: Value = serde_json::from_str(&said).unwrap();
                assert_eq!(plain["content"][0]["input"], input);
            }
        }
        let delta = &events[events.len() - 2].1;
        assert_eq!(delta["delta"]["stop_reason"], reason);
        assert_eq!(
            delta["usage"]["output_tokens"],
            plain["usage"]["output_tokens"]
        );
    }
}

#[tokio::test]
async fn reasoning_is_a_block_of_its_own() {
    let mut options = Options::default();
    options.formats.reasoning = Some(ReasoningFormat::Think);
    let server = server_with(options);
    let answer = MESSAGES
        .ask(
            &server,
            json!({"grammar": "start: \"<think>Long.</think>Short.\""}),
        )
        .await;
    assert_eq!(answer["content"][0]["thinking"], "Long.");
    assert_eq!(answer["content"][1]["text"], "Short.");
}

#[tokio::test]
async fn tokens_are_counted_as_they_are_used() {
    let server = wide_server();
    let fields = json!({"system": "Be brief.", "tools": [tool()]});
    let (status, count) = server.post(COUNT, &MESSAGES.body(&fields)).await;
    assert_eq!(status, StatusCode::OK, "{count}");
    let answer = MESSAGES.ask(&server, fields).await;
    let usage = &answer["usage"];
    let used = usage["input_tokens"].as_u64().unwrap()
        + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count, json!({"input_tokens": used}));
    let (status, answer) = server.post(COUNT, &json!({"model": MODEL})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["type"], "error");
}

#[tokio::test]
async fn errors_have_anthropics_shape() {
    let mut options = Options::default();
    options.settings.keys = crate::common::one_key("secret");
    let server = server_with(options);
    let send = async |path: &str, key: Option<(&str, &str)>, body: &Value| {
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some((name, value)) = key {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let (status, headers, bytes) = server.call(request).await;
        assert_eq!(headers["request-id"], headers["x-request-id"]);
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        (status, answer)
    };
    let good = MESSAGES.body(&json!({"max_tokens": 2}));
    let api_key = Some(("x-api-key", "secret"));
    assert_eq!(send(MESSAGES.path, api_key, &good).await.0, StatusCode::OK);
    let bearer = Some(("authorization", "Bearer secret"));
    assert_eq!(send(MESSAGES.path, bearer, &good).await.0, StatusCode::OK);
    let cases = [
        (
            MESSAGES.path,
            None,
            good.clone(),
            401,
            "authentication_error",
        ),
        (
            MESSAGES.path,
            Some(("x-api-key", "wrong")),
            good.clone(),
            401,
            "authentication_error",
        ),
        (
            MESSAGES.path,
            api_key,
            json!({}),
            400,
            "invalid_request_error",
        ),
        (
            MESSAGES.path,
            api_key,
            MESSAGES.body(&json!({"model": "claude"})),
            404,
            "not_found_error",
        ),
        (
            "/v1/messages/batches",
            api_key,
            json!({}),
            404,
            "not_found_error",
        ),
    ];
    for (path, key, body, status, kind) in cases {
        let (found, answer) = send(path, key, &body).await;
        assert_eq!(found, status, "{answer}");
        assert_eq!(answer["type"], "error");
        assert_eq!(answer["error"]["type"], kind, "{answer}");
        assert!(answer["request_id"].as_str().unwrap().starts_with("req-"));
    }
}

#[tokio::test]
async fn another_method_is_refused_in_the_same_shape() {
    let (status, headers, bytes) = wide_server().get(MESSAGES.path).await;
    assert_eq!(
        (status, &headers["allow"]),
        (
            StatusCode::METHOD_NOT_ALLOWED,
            &"POST, OPTIONS".parse().unwrap()
        )
    );
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(answer["type"], "error");
}

#[tokio::test]
async fn a_failure_after_the_start_is_an_event() {
    let options = Options {
        failing: vec![1],
        ..Options::default()
    };
    let stream = server_with(options)
        .stream(MESSAGES.path, &MESSAGES.body(&json!({"stream": true})))
        .await;
    let events = named_events(&stream);
    let (name, error) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(error["error"]["type"], "api_error");
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn faults_name_the_field() {
    let server = wide_server();
    let content = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let cases = [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": 100_000}), "max_tokens"),
        (json!({"messages": []}), "messages"),
        (
            json!({"messages": [{"role": "system", "content": "x"}]}),
            "messages[0].role",
        ),
        (
            content(json!([{"text": "x"}])),
            "messages[0].content[0].type",
        ),
        (
            content(json!([{"type": "image"}])),
            "messages[0].content[0].type",
        ),
        (
            content(json!([{"type": "text"}])),
            "messages[0].content[0].text",
        ),
        (
            content(json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}])),
            "messages[0].content[0].type",
        ),
        (
            content(json!([{"type": "tool_result", "tool_use_id": "t"}])),
            "messages[0].content[0].tool_use_id",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools[0].type",
        ),
        (json!({"tools": [tool(), tool()]}), "tools[1].name"),
        (
            json!({"tools": [tool()], "tool_choice": {"type": "tool", "name": "f"}}),
            "tool_choice.name",
        ),
        (
            json!({"tools": [tool()], "tool_choice": {"type": "tool"}}),
            "tool_choice.name",
        ),
        (json!({"stop_sequences": [""]}), "stop_sequences[0]"),
        (json!({"thinking": {"type": "long"}}), "thinking.type"),
        (
            json!({"output_config": {"format": {"type": "json_object"}}}),
            "output_config.format.type",
        ),
        (
            json!({"output_config": {"format": {"type": "json_schema"}}}),
            "output_config.format.schema",
        ),
        (
            json!({"output_format": {"type": "json_schema", "schema": {"$ref": "x"}}}),
            "output_format.schema",
        ),
        (
            json!({"output_config": {"format": {"type": "json_schema", "schema": {}}}, "regex": "a"}),
            "output_config.format",
        ),
        (json!({"n": 2}), "n"),
        (json!({"top_p": 2}), "top_p"),
    ];
    for (fields, param) in cases {
        let (status, answer) = server.post(MESSAGES.path, &MESSAGES.body(&fields)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{param}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{param} ")), "{answer}");
    }
    server.until_idle().await;
}
