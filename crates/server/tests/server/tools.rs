//! Calls of functions in chats: enforced, read, streamed, and refused.

use axum::http::StatusCode;
use serde_json::{Value, json};
use text::{ReasoningFormat, ToolFormat};

use crate::common::translated::wide;
use crate::common::{Options, chat, events, server, server_with};

const CHAT: &str = "/v1/chat/completions";

/// A function with bounded arguments.
fn add() -> Value {
    json!({"type": "function", "function": {
        "name": "add", "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 99},
            "b": {"enum": [1, 22]},
        }, "required": ["a", "b"]}}})
}

fn now() -> Value {
    json!({"type": "function", "function": {"name": "now"}})
}

fn tools() -> Value {
    json!([add(), now()])
}

fn assert_call(call: &Value) {
    assert_eq!(call["type"], "function");
    assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).expect("valid JSON");
    let arguments = arguments.as_object().unwrap();
    match call["function"]["name"].as_str().unwrap() {
        "add" => {
            assert!(
                (0..=99).contains(&arguments["a"].as_i64().unwrap()),
                "{call}"
            );
            assert!(
                [1, 22].contains(&arguments["b"].as_i64().unwrap()),
                "{call}"
            );
            assert_eq!(arguments.len(), 2);
        }
        "now" => assert!(arguments.is_empty(), "{call}"),
        other => panic!("{other} is no function"),
    }
}

#[tokio::test]
async fn required_calls_are_valid_whatever_the_model_says() {
    for format in ToolFormat::NAMES.map(|(_, format)| format) {
        let mut options = wide();
        options.formats.tools = Some(format);
        let server = server_with(options);
        // The format gemma follows no bounds of numbers.
        let mut tools = tools();
        if format == ToolFormat::Gemma {
            tools[0]["function"]["parameters"]["properties"]["a"] = json!({"enum": [3, 44]});
        }
        for seed in 0..6 {
            let fields = json!({"tools": tools, "tool_choice": "required", "max_tokens": 400,
                "temperature": 1.2, "seed": seed, "parallel_tool_calls": seed % 2 == 0});
            let answer = server.chat(fields).await;
            let choice = &answer["choices"][0];
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            let whole = match choice["finish_reason"].as_str().unwrap() {
                "tool_calls" => calls.len(),
                // A budget may end inside the last of several calls.
                _ => calls.len() - 1,
            };
            calls[..whole].iter().for_each(assert_call);
            assert!(choice["message"]["content"].is_null(), "{choice}");
            if seed % 2 == 1 {
                assert_eq!(calls.len(), 1, "{choice}");
                assert_eq!(choice["finish_reason"], "tool_calls");
            }
        }
    }
}

#[tokio::test]
async fn a_named_function_is_called_once() {
    let server = server_with(wide());
    let choice = json!({"type": "function", "function": {"name": "now"}});
    let fields = json!({"tools": tools(), "tool_choice": choice, "max_tokens": 100});
    let answer = server.chat(fields).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["function"]["name"], "now");
    assert_eq!(calls[0]["function"]["arguments"], "{}");
}

#[tokio::test]
async fn a_streamed_call_begins_with_its_name_and_equals_the_plain_one() {
    let server = server_with(wide());
    let mut body = chat(
        json!({"tools": tools(), "tool_choice": "required", "max_tokens": 300,
        "parallel_tool_calls": false, "seed": 3, "temperature": 1, "return_token_ids": true,
        "stream_options": null}),
    );
    let (status, plain) = server.post(CHAT, &body).await;
    assert_eq!(status, StatusCode::OK, "{plain}");
    let plain = &plain["choices"][0];
    body["stream"] = json!(true);
    let mut deltas = Vec::new();
    let mut tokens = Vec::new();
    let mut reasons = Vec::new();
    for event in events(&server.stream(CHAT, &body).await) {
        let choice = &event["choices"][0];
        deltas.push(choice["delta"].clone());
        tokens.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
        reasons.push(choice["finish_reason"].clone());
    }
    assert_eq!(deltas[0], json!({"role": "assistant", "content": ""}));
    assert_eq!(reasons.pop().unwrap(), "tool_calls");
    assert!(reasons.iter().all(Value::is_null));
    let calls: Vec<&Value> = deltas[1..deltas.len() - 1]
        .iter()
        .map(|delta| &delta["tool_calls"][0])
        .collect();
    let expected = &plain["message"]["tool_calls"][0];
    let (first, rest) = calls.split_first().unwrap();
    assert_eq!(first["index"], 0);
    assert!(first["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(
        first["function"],
        json!({"name": expected["function"]["name"], "arguments": ""})
    );
    let mut arguments = String::new();
    for call in rest {
        assert!(
            call["id"].is_null() && call["function"]["name"].is_null(),
            "{call}"
        );
        arguments += call["function"]["arguments"].as_str().unwrap();
    }
    assert_eq!(expected["function"]["arguments"], arguments);
    assert_eq!(json!(tokens), plain["token_ids"]);
}

#[tokio::test]
async fn auto_never_ends_in_a_malformed_call() {
    let server = server_with(wide());
    for seed in 0..8 {
        // A bias towards the mark makes the simulated model begin calls.
        let mark = server.tokenizer.encode("<tool_call>", false).unwrap();
        let bias: serde_json::Map<_, _> =
            mark.iter().map(|id| (id.to_string(), json!(20))).collect();
        let fields = json!({"tools": tools(), "max_tokens": 30 + 40 * seed, "seed": seed,
            "temperature": 1, "logit_bias": bias});
        let answer = server.chat(fields).await;
        let choice = &answer["choices"][0];
        let calls = choice["message"]["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let content = choice["message"]["content"].as_str().unwrap_or_default();
        assert!(!content.contains("<tool_call>"), "{choice}");
        let whole = match choice["finish_reason"].as_str().unwrap() {
            "length" => calls.len().saturating_sub(1),
            "tool_calls" => calls.len(),
            _ => {
                assert!(calls.is_empty(), "{choice}");
                0
            }
        };
        calls[..whole].iter().for_each(assert_call);
    }
}

#[tokio::test]
async fn a_budget_that_ends_inside_a_call_gives_its_beginning() {
    let server = server_with(wide());
    let fields =
        |budget: u32| json!({"tools": [add()], "tool_choice": "required", "max_tokens": budget});
    let answer = server.chat(fields(2)).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"]["tool_calls"].is_null(), "{choice}");
    let whole = server.chat(fields(200)).await;
    let used = whole["usage"]["completion_tokens"].as_u64().unwrap();
    let whole = &whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    let cut = server.chat(fields(u32::try_from(used).unwrap() - 8)).await;
    let choice = &cut["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    let begun = choice["message"]["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap_or("");
    assert!(whole.as_str().unwrap().starts_with(begun), "{choice}");
}

#[tokio::test]
async fn none_and_an_empty_list_change_nothing() {
    let server = server_with(wide());
    let plain = server.chat(json!({})).await;
    for fields in [
        json!({"tools": [], "tool_choice": "auto"}),
        json!({"tools": tools(), "tool_choice": "none"}),
        json!({"tools": null, "tool_choice": null, "parallel_tool_calls": null}),
        json!({"parallel_tool_calls": false, "chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let answer = server.chat(fields).await;
        assert_eq!(answer["choices"], plain["choices"]);
        assert_eq!(
            answer["usage"]["prompt_tokens"],
            plain["usage"]["prompt_tokens"]
        );
    }
}

#[tokio::test]
async fn tools_and_past_calls_reach_the_prompt() {
    let server = server_with(wide());
    let call = json!({"id": "c1", "type": "function", "function": {"name": "add",
        "arguments": "{\"a\": 1, \"b\": 22}"}});
    let messages = json!([
        {"role": "user", "content": "1 + 22?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "23"}]},
    ]);
    let fields = json!({"messages": messages, "tools": tools(), "return_token_ids": true,
        "max_tokens": 4});
    let answer = server.chat(fields).await;
    let ids: Vec<u32> =
        serde_json::from_value(answer["choices"][0]["prompt_token_ids"].clone()).unwrap();
    let text = server.tokenizer.decode(&ids, false);
    for part in [
        "{\"name\": \"add\", \"description\": \"Adds two numbers.\"",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 22}}\n</tool_call>",
        "<tool_response>\n23\n</tool_response>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn a_schema_of_the_answer_goes_with_tools() {
    let server = server_with(wide());
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    for seed in 0..4 {
        let answer = server
            .chat(
                json!({"tools": [add()], "response_format": format, "seed": seed,
            "temperature": 1.5, "max_tokens": 300, "parallel_tool_calls": false}),
            )
            .await;
        let choice = &answer["choices"][0];
        match choice["message"]["tool_calls"].as_array() {
            Some(calls) => calls.iter().for_each(assert_call),
            None => {
                let text = choice["message"]["content"].as_str().unwrap();
                let value: Value = serde_json::from_str(text).unwrap();
                assert!(
                    [json!({"x": 1}), json!({"x": 2})].contains(&value),
                    "{text}"
                );
            }
        }
    }
}

#[tokio::test]
async fn reasoning_is_told_apart_where_a_parser_is_set() {
    let grammar = json!({"grammar": "start: \"<think>\\nLong.\\n</think>\\n\\nShort.\""});
    let plain = server().chat(grammar.clone()).await;
    let said = "<think>\nLong.\n</think>\n\nShort.";
    assert_eq!(plain["choices"][0]["message"]["content"], said);
    let mut options = wide();
    options.formats.reasoning = Some(ReasoningFormat::Think);
    let server = server_with(options);
    let answer = server.chat(grammar.clone()).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Long.");
    assert_eq!(message["content"], "Short.");
    let mut body = chat(grammar);
    body["stream"] = json!(true);
    let (mut reasoning, mut content) = (String::new(), String::new());
    for event in events(&server.stream(CHAT, &body).await) {
        let delta = &event["choices"][0]["delta"];
        reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        content += delta["content"].as_str().unwrap_or_default();
    }
    assert_eq!((&*reasoning, &*content), ("Long.", "Short."));
}

fn function(function: Value) -> Value {
    json!({"tools": [{"type": "function", "function": function}]})
}

fn history(calls: Value, answer: Value) -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": calls}, answer]})
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn faults_name_the_field() {
    let server = server_with(wide());
    let call = |arguments: &str| {
        json!([{"id": "c", "type": "function",
        "function": {"name": "add", "arguments": arguments}}])
    };
    let many: Vec<Value> = (0..129)
        .map(|at| json!({"type": "function", "function": {"name": format!("f{at}")}}))
        .collect();
    let cases = [
        (json!({"tools": 1}), "invalid_type", "tools"),
        (json!({"tools": [1]}), "invalid_type", "tools[0]"),
        (
            json!({"tools": [{"type": "web_search"}]}),
            "invalid_value",
            "tools[0].type",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            "missing_required_parameter",
            "tools[0].function",
        ),
        (
            function(json!({})),
            "missing_required_parameter",
            "tools[0].function.name",
        ),
        (
            function(json!({"name": "a b"})),
            "invalid_value",
            "tools[0].function.name",
        ),
        (
            function(json!({"name": ""})),
            "invalid_value",
            "tools[0].function.name",
        ),
        (
            function(json!({"name": "f", "parameters": []})),
            "invalid_type",
            "tools[0].function.parameters",
        ),
        (
            function(json!({"name": "f", "strict": 1})),
            "invalid_type",
            "tools[0].function.strict",
        ),
        (json!({"tools": many}), "invalid_value", "tools"),
        (
            json!({"tools": [now(), now()]}),
            "invalid_value",
            "tools[1].function.name",
        ),
        (
            json!({"tool_choice": "required", "tools": [now(), {"type": "function", "function": {"name": "f",
            "parameters": {"type": "object", "properties": {"x": {"$ref": "http://x/y"}}}}}]}),
            "invalid_value",
            "tools[1].function.parameters",
        ),
        (
            json!({"tools": [now(), {"type": "function", "function": {"name": "f", "strict": true,
            "parameters": {"properties": {"x": {"pattern": "a?".repeat(1000)}}}}}]}),
            "invalid_value",
            "tools[1].function.parameters",
        ),
        (
            json!({"tool_choice": "required"}),
            "invalid_value",
            "tool_choice",
        ),
        (
            json!({"tools": tools(), "tool_choice": "any"}),
            "invalid_value",
            "tool_choice",
        ),
        (
            json!({"tools": tools(), "tool_choice": {"type": "function"}}),
            "missing_required_parameter",
            "tool_choice.function",
        ),
        (
            json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "f"}}}),
            "invalid_value",
            "tool_choice.function.name",
        ),
        (
            json!({"parallel_tool_calls": 1}),
            "invalid_type",
            "parallel_tool_calls",
        ),
        (
            json!({"chat_template_kwargs": 1}),
            "invalid_type",
            "chat_template_kwargs",
        ),
        (
            json!({"chat_template_kwargs": {"messages": []}}),
            "invalid_value",
            "chat_template_kwargs.messages",
        ),
        (
            json!({"tools": tools(), "min_tokens": 1}),
            "invalid_value",
            "min_tokens",
        ),
        (
            json!({"tools": tools(), "ignore_eos": true}),
            "invalid_value",
            "ignore_eos",
        ),
        (
            json!({"tools": tools(), "regex": "a"}),
            "invalid_value",
            "regex",
        ),
        (
            history(call("{}"), json!({"role": "tool", "content": "1"})),
            "missing_required_parameter",
            "messages[2].tool_call_id",
        ),
        (
            history(
                call("{}"),
                json!({"role": "tool", "content": "1", "tool_call_id": "d"}),
            ),
            "invalid_value",
            "messages[2].tool_call_id",
        ),
        (
            history(call("{}"), json!({"role": "tool", "tool_call_id": "c"})),
            "missing_required_parameter",
            "messages[2].content",
        ),
        (
            history(
                call(&format!("{{\"a\": [{}1]}}", "1,".repeat(1 << 18))),
                json!({"role": "user", "content": "1"}),
            ),
            "invalid_value",
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "invalid_value",
            "messages[0].content[0].type",
        ),
    ];
    for (fields, code, param) in cases {
        let (status, answer) = server.post(CHAT, &chat(fields)).await;
        let error = &answer["error"];
        assert_eq!(status, StatusCode::BAD_REQUEST, "{param}: {answer}");
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(code), &json!(param)),
            "{answer}"
        );
    }
    server.until_idle().await;
}

#[tokio::test]
async fn tools_are_refused_where_the_template_shows_another_format() {
    let template = Some("{{ tools }}{% if false %}[TOOL_CALLS]{% endif %}{{ messages }}");
    let server = server_with(Options { template, ..wide() });
    let body = chat(json!({"tools": tools()}));
    let (status, answer) = server.post("/v1/chat/completions", &body).await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(answer["error"]["code"], "unsupported_parameter");
    assert_eq!(answer["error"]["param"], "tools");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("[TOOL_CALLS]"), "{message}");
    for extra in [json!({}), json!({"tools": tools(), "tool_choice": "none"})] {
        server.chat(extra).await;
    }
    let mut options = wide();
    (options.template, options.formats.tools) = (template, Some(ToolFormat::Json));
    server_with(options).chat(json!({"tools": tools()})).await;
}

/// A schema that no grammar follows wholly is served under `auto` and told in a header; it is refused by name
/// where calls are required or the function is strict.
#[tokio::test]
async fn what_calls_do_not_follow_is_told_or_refused() {
    let server = server_with(wide());
    let function = |parameters: Value, strict: bool| json!([{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}]);
    let unique = json!({"type": "object", "properties": {
        "tags": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}}});
    let foreign = json!({"$ref": "https://example.com/schema"});
    // Arguments are objects, whatever the schema allows.
    let string = json!({"anyOf": [{"type": "string"}]});
    let number = json!({"enum": [1]});
    let whole =
        json!({"type": "object", "properties": {"a": {"type": "string", "format": "binary"}}});
    for (parameters, told) in [
        (&unique, Some("f.properties.tags.uniqueItems")),
        (&foreign, Some("f")),
        (&string, Some("f")),
        (&number, Some("f")),
        (&whole, None),
    ] {
        let body = chat(json!({"tools": function(parameters.clone(), false), "max_tokens": 40}));
        let request = axum::http::Request::post(CHAT).header("content-type", "application/json");
        let request = request
            .body(axum::body::Body::from(body.to_string()))
            .unwrap();
        let (status, headers, _) = server.call(request).await;
        assert_eq!(status, StatusCode::OK, "{parameters}");
        let header = headers
            .get("x-unenforced")
            .map(|value| value.to_str().unwrap());
        assert_eq!(header, told, "{parameters}");
        for fields in [
            json!({"tools": function(parameters.clone(), false), "tool_choice": "required", "max_tokens": 300}),
            json!({"tools": function(parameters.clone(), true), "max_tokens": 300}),
        ] {
            let (status, answer) = server.post(CHAT, &chat(fields)).await;
            if told.is_none() {
                assert_eq!(status, StatusCode::OK, "{answer}");
            } else {
                assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
                assert_eq!(
                    answer["error"]["param"], "tools[0].function.parameters",
                    "{answer}"
                );
            }
        }
    }
    let listed = function(json!({"type": "array"}), false);
    let (status, answer) = server.post(CHAT, &chat(json!({"tools": listed}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(
        answer["error"]["param"],
        "tools[0].function.parameters.type"
    );
    server.until_idle().await;
}

/// The schema beside the type `json_object`, as other servers take it.
#[tokio::test]
async fn a_json_object_follows_the_schema_beside_it() {
    let server = server_with(wide());
    let schema =
        json!({"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]});
    for seed in 0..4 {
        let format = json!({"type": "json_object", "schema": schema});
        let answer = server
            .chat(json!({"response_format": format, "max_tokens": 60, "temperature": 1.0, "seed": seed}))
            .await;
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(
            [json!({"a": 1}), json!({"a": 22})].contains(&value),
            "{text}"
        );
    }
}
