//! Calls of functions in chats: enforced, read, streamed, and refused.

use text::{ReasoningFormat, ToolFormat};

use crate::common::*;

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

/// The calls of a choice's message.
fn calls(choice: &Value) -> Vec<Value> {
    let calls = choice["message"]["tool_calls"].as_array();
    calls.cloned().unwrap_or_default()
}

fn assert_call(call: &Value) {
    assert_eq!(call["type"], "function");
    assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).expect("valid JSON");
    let (a, b) = (arguments["a"].as_i64(), arguments["b"].as_i64());
    match call["function"]["name"].as_str().unwrap() {
        "add" => {
            assert!((0..=99).contains(&a.unwrap()), "{call}");
            assert!([1, 22].contains(&b.unwrap()), "{call}");
            assert_eq!(arguments.as_object().unwrap().len(), 2);
        }
        "now" => assert_eq!(arguments, json!({}), "{call}"),
        other => panic!("{other} is no function"),
    }
}

/// Checks every call of a choice but one that its budget may have cut.
fn assert_calls(choice: &Value) {
    let calls = calls(choice);
    let whole = match choice["finish_reason"].as_str().unwrap() {
        "tool_calls" => calls.len(),
        "length" => calls.len().saturating_sub(1),
        _ => {
            assert!(calls.is_empty(), "{choice}");
            0
        }
    };
    calls[..whole].iter().for_each(assert_call);
}

#[tokio::test]
async fn required_calls_are_valid_whatever_the_model_says() {
    for (_, format) in ToolFormat::NAMES {
        let server = wide_server_where(|options| options.formats.tools = Some(format));
        // The format gemma follows no bounds of numbers.
        let mut tools = tools();
        if format == ToolFormat::Gemma {
            tools[0]["function"]["parameters"]["properties"]["a"] = json!({"enum": [3, 44]});
        }
        for seed in 0..6 {
            let answer = ask!(server, CHAT {"tools": tools, "tool_choice": "required",
                "max_tokens": 400, "temperature": 1.2, "seed": seed,
                "parallel_tool_calls": seed % 2 == 0});
            let choice = &answer["choices"][0];
            assert_calls(choice);
            assert!(!calls(choice).is_empty(), "{choice}");
            assert!(choice["message"]["content"].is_null(), "{choice}");
            if seed % 2 == 1 {
                assert_eq!(calls(choice).len(), 1, "{choice}");
                assert_eq!(choice["finish_reason"], "tool_calls");
            }
        }
    }
}

#[tokio::test]
async fn a_named_function_is_called_once() {
    let answer = ask!(wide_server(), CHAT {"tools": tools(), "max_tokens": 100,
        "tool_choice": {"type": "function", "function": {"name": "now"}}});
    has!(answer, {"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [
        {"function": {"name": "now", "arguments": "{}"}}]}}]});
}

/// The prompt lists every function, so that it stays in the prefix cache; the answer calls the allowed ones.
#[tokio::test]
async fn allowed_functions_alone_are_called() {
    let server = wide_server();
    let names = |name: &str| json!([{"type": "function", "function": {"name": name}}]);
    let prompt = async |fields: Value| {
        let fields = merge(
            fields,
            json!({"tools": tools(), "return_token_ids": true, "max_tokens": 300,
            "temperature": 1.2}),
        );
        server.chat(fields).await
    };
    let all = prompt(json!({"tool_choice": "required"})).await;
    for seed in 0..4 {
        let allowed = json!({"mode": "required", "tools": names("now")});
        let answer = prompt(json!({"seed": seed,
            "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}));
        let choice = answer.await["choices"][0].clone();
        assert_eq!(choice["prompt_token_ids"], all["choices"][0]["prompt_token_ids"]);
        assert!(!calls(&choice).is_empty(), "{choice}");
        assert!(calls(&choice).iter().all(|call| call["function"]["name"] == "now"), "{choice}");
    }
    let chosen = |choice: Value| json!({"tools": tools(), "tool_choice": choice});
    let allowed = |tools: Value| {
        chosen(json!({"type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": tools}}))
    };
    let cases = refusals! {
        (allowed(names("later"))), (allowed(json!([])))
            => invalid_value "tool_choice.allowed_tools.tools";
        (chosen(json!({"type": "allowed_tools"})))
            => missing_required_parameter "tool_choice.allowed_tools";
        (chosen(json!({"type": "function"})))
            => missing_required_parameter "tool_choice.function";
        (chosen(json!({"type": "custom"}))) => invalid_value "tool_choice.type";
    };
    server.refuses(CHAT, &cases).await;
}

#[tokio::test]
async fn a_streamed_call_begins_with_its_name_and_equals_the_plain_one() {
    let server = wide_server();
    let fields = json!({"tools": tools(), "tool_choice": "required", "max_tokens": 300,
        "parallel_tool_calls": false, "seed": 3, "temperature": 1, "return_token_ids": true,
        "stream_options": null});
    let plain = server.chat(fields.clone()).await["choices"][0].clone();
    let (mut deltas, mut tokens, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    for event in events(&server.stream(CHAT, fields).await) {
        let choice = &event["choices"][0];
        deltas.push(choice["delta"].clone());
        tokens.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
        reasons.push(choice["finish_reason"].clone());
    }
    assert_eq!(deltas[0], json!({"role": "assistant", "content": ""}));
    assert_eq!(reasons.pop().unwrap(), "tool_calls");
    assert!(reasons.iter().all(Value::is_null));
    let expected = &plain["message"]["tool_calls"][0]["function"];
    let first = &deltas[1]["tool_calls"][0];
    assert_eq!(first["index"], 0);
    assert!(first["id"].as_str().unwrap().starts_with("call_"));
    let begun = json!({"name": expected["name"], "arguments": ""});
    assert_eq!(first["function"], begun);
    let mut arguments = String::new();
    for delta in &deltas[2..deltas.len() - 1] {
        let call = &delta["tool_calls"][0];
        has!(*call, {"id": null, "function": {"name": null}});
        arguments += call["function"]["arguments"].as_str().unwrap();
    }
    assert_eq!(expected["arguments"], arguments);
    assert_eq!(json!(tokens), plain["token_ids"]);
}

#[tokio::test]
async fn auto_never_ends_in_a_malformed_call() {
    let server = wide_server();
    // A bias towards the mark makes the simulated model begin calls.
    let mark = server.tokenizer.encode("<tool_call>", false).unwrap();
    let bias = mark.iter().map(|id| (id.to_string(), json!(20)));
    let bias: serde_json::Map<_, _> = bias.collect();
    for seed in 0..8 {
        let answer = ask!(server, CHAT {"tools": tools(), "max_tokens": 30 + 40 * seed,
            "seed": seed, "temperature": 1, "logit_bias": bias});
        let choice = &answer["choices"][0];
        let content = choice["message"]["content"].as_str().unwrap_or_default();
        assert!(!content.contains("<tool_call>"), "{choice}");
        assert_calls(choice);
    }
}

#[tokio::test]
async fn a_budget_that_ends_inside_a_call_gives_its_beginning() {
    let server = wide_server();
    let call = async |budget: u64| {
        let answer = ask!(server, CHAT {"tools": [add()], "tool_choice": "required",
            "max_tokens": budget});
        let choice = &answer["choices"][0];
        let arguments = &choice["message"]["tool_calls"][0]["function"]["arguments"];
        let used = answer["usage"]["completion_tokens"].as_u64().unwrap();
        (choice.clone(), arguments.as_str().map(str::to_owned), used)
    };
    let (choice, ..) = call(2).await;
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"]["tool_calls"].is_null(), "{choice}");
    let (_, whole, used) = call(200).await;
    let (choice, begun, _) = call(used - 8).await;
    assert_eq!(choice["finish_reason"], "length");
    let begun = begun.unwrap_or_default();
    assert!(whole.unwrap().starts_with(&begun), "{choice}");
}

#[tokio::test]
async fn a_stop_inside_a_call_cuts_it() {
    let server = wide_server();
    let fields = json!({"tools": [add()], "tool_choice": "required", "max_tokens": 200,
        "parallel_tool_calls": false, "return_token_ids": true});
    let whole = server.chat(fields.clone()).await["choices"][0].clone();
    let arguments = |choice: &Value| {
        let call = &choice["message"]["tool_calls"][0];
        call["function"]["arguments"].as_str().unwrap_or_default().to_owned()
    };
    let expected = arguments(&whole);
    let brace = server.tokenizer.encode("}", false).unwrap();
    for stop in [json!({"stop": "}"}), json!({"stop": "add\""}), json!({"stop_token_ids": brace})] {
        let fields = merge(fields.clone(), stop.clone());
        let choice = server.chat(fields.clone()).await["choices"][0].clone();
        let found = arguments(&choice);
        assert!(found.len() < expected.len() && expected.starts_with(&found), "{stop}: {choice}");
        assert_eq!(choice["finish_reason"], "stop", "{stop}");
        let last = events(&server.stream(CHAT, fields).await).pop().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "stop", "{stop}");
    }
    // The call is complete before these.
    for stop in rows! {
        json!({"stop": "</tool_call>"}); json!({"stop": "}", "include_stop_str_in_output": true});
    } {
        let choice = server.chat(merge(fields.clone(), stop)).await["choices"][0].clone();
        assert_eq!(
            (arguments(&choice), &choice["finish_reason"]),
            (expected.clone(), &json!("tool_calls"))
        );
    }
}

#[tokio::test]
async fn none_and_an_empty_list_change_nothing() {
    let server = wide_server();
    let plain = server.chat(json!({})).await;
    for fields in [
        json!({"tools": [], "tool_choice": "auto"}),
        json!({"tools": tools(), "tool_choice": "none"}),
        json!({"tools": null, "tool_choice": null, "parallel_tool_calls": null}),
        json!({"parallel_tool_calls": false, "chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let answer = server.chat(fields).await;
        assert_eq!(answer["choices"], plain["choices"]);
        let prompt = &plain["usage"]["prompt_tokens"];
        assert_eq!(answer["usage"]["prompt_tokens"], *prompt);
    }
}

#[tokio::test]
async fn tools_and_past_calls_reach_the_prompt() {
    let server = wide_server();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "add",
        "arguments": "{\"a\": 1, \"b\": 22}"}});
    let answer = ask!(server, CHAT {"tools": tools(), "return_token_ids": true, "max_tokens": 4,
    "messages": [
        {"role": "user", "content": "1 + 22?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "23"}]},
    ]});
    let prompt = server.prompt(&answer);
    for part in [
        "{\"name\": \"add\", \"description\": \"Adds two numbers.\"",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 22}}\n</tool_call>",
        "<tool_response>\n23\n</tool_response>",
    ] {
        assert!(prompt.contains(part), "{part} in {prompt}");
    }
}

#[tokio::test]
async fn a_schema_of_the_answer_goes_with_tools() {
    let server = wide_server();
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [1, 22]}}, "required": ["x"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    for seed in 0..4 {
        let answer = ask!(server, CHAT {"tools": [add()], "response_format": format, "seed": seed,
            "temperature": 1.5, "max_tokens": 300, "parallel_tool_calls": false});
        let calls = calls(&answer["choices"][0]);
        calls.iter().for_each(assert_call);
        if calls.is_empty() {
            let value: Value = serde_json::from_str(text(&answer)).unwrap();
            assert!([json!({"x": 1}), json!({"x": 22})].contains(&value));
        }
    }
}

#[tokio::test]
async fn reasoning_is_told_apart_where_a_parser_is_set() {
    let said = "<think>\nLong.\n</think>\n\nShort.";
    let grammar = json!({"grammar": format!("start: {said:?}")});
    assert_eq!(text(&server().chat(grammar.clone()).await), said);
    let think = Some(ReasoningFormat::Think);
    let server = wide_server_where(|options| options.formats.reasoning = think);
    let answer = server.chat(grammar.clone()).await;
    has!(answer["choices"][0]["message"], {"reasoning_content": "Long.", "content": "Short."});
    let ids = ids(
        &ask!(server, CHAT {"grammar": grammar["grammar"], "return_token_ids": true})["choices"][0]
            ["token_ids"],
    );
    let is_closed =
        |count: &usize| server.tokenizer.decode(&ids[..*count], false).contains("</think>");
    let thought = (0..=ids.len()).find(is_closed).unwrap();
    let details = json!({"completion_tokens_details": {"reasoning_tokens": thought}});
    assert_has(&answer["usage"], &details);
    let response = server.ask(RESPONSES, grammar.clone()).await;
    let details_there = json!({"output_tokens_details": {"reasoning_tokens": thought}});
    assert_has(&response["usage"], &details_there);
    let plain = server.chat(json!({"grammar": "start: \"Short.\""})).await;
    has!(plain["usage"], {"completion_tokens_details": null});
    let message = server.ask(MESSAGES, grammar.clone()).await;
    has!(message, {"content": [{"thinking": "Long."}, {"text": "Short."}]});
    let (mut reasoning, mut content) = (String::new(), String::new());
    let streamed = merge(grammar, json!({"stream_options": {"include_usage": true}}));
    let events = events(&server.stream(CHAT, streamed).await);
    assert_has(&events.last().unwrap()["usage"], &details);
    for event in events {
        let delta = &event["choices"][0]["delta"];
        reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        content += delta["content"].as_str().unwrap_or_default();
    }
    assert_eq!((&*reasoning, &*content), ("Long.", "Short."));
}

fn function(function: Value) -> Value {
    json!({"tools": [{"type": "function", "function": function}]})
}

/// A history with a call of `arguments` and then `answer`.
fn history(arguments: &str, answer: Value) -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}]},
        answer]})
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = wide_server();
    let named = |name: String| json!({"type": "function", "function": {"name": name}});
    let many: Vec<Value> = (0..129).map(|index| named(format!("f{index}"))).collect();
    let long = format!("{{\"a\": [{}1]}}", "1,".repeat(1 << 18));
    let foreign = json!({"type": "object", "properties": {"x": {"$ref": "http://x/y"}}});
    let dear = json!({"properties": {"x": {"pattern": "a?".repeat(1000)}}});
    let cases = refusals! {
        {"tools": 1} => invalid_type "tools";
        {"tools": [1]} => invalid_type "tools[0]";
        {"tools": [{"type": "web_search"}]} => invalid_value "tools[0].type";
        {"tools": [{"type": "function"}]} => missing_required_parameter "tools[0].function";
        (function(json!({}))) => missing_required_parameter "tools[0].function.name";
        (function(json!({"name": "a b"}))), (function(json!({"name": ""})))
            => invalid_value "tools[0].function.name";
        (function(json!({"name": "f", "parameters": []})))
            => invalid_type "tools[0].function.parameters";
        (function(json!({"name": "f", "parameters": {"type": "array"}})))
            => invalid_value "tools[0].function.parameters.type";
        (function(json!({"name": "f", "strict": 1})))
            => invalid_type "tools[0].function.strict";
        {"tools": many} => invalid_value "tools";
        {"tools": [now(), now()]} => invalid_value "tools[1].function.name";
        {"tool_choice": "required", "tools": [now(),
            {"type": "function", "function": {"name": "f", "parameters": foreign}}]},
        {"tools": [now(),
            {"type": "function", "function": {"name": "f", "strict": true, "parameters": dear}}]}
            => invalid_value "tools[1].function.parameters";
        {"tool_choice": "required"}, {"tools": tools(), "tool_choice": "any"}
            => invalid_value "tool_choice";
        {"tools": tools(), "tool_choice": {"type": "function"}}
            => missing_required_parameter "tool_choice.function";
        {"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "f"}}}
            => invalid_value "tool_choice.function.name";
        {"parallel_tool_calls": 1} => invalid_type "parallel_tool_calls";
        {"chat_template_kwargs": 1} => invalid_type "chat_template_kwargs";
        {"chat_template_kwargs": {"messages": []}}
            => invalid_value "chat_template_kwargs.messages";
        {"tools": tools(), "min_tokens": 1} => invalid_value "min_tokens";
        {"tools": tools(), "ignore_eos": true} => invalid_value "ignore_eos";
        {"tools": tools(), "regex": "a"} => invalid_value "regex";
        (history("{}", json!({"role": "tool", "content": "1"})))
            => missing_required_parameter "messages[2].tool_call_id";
        (history("{}", json!({"role": "tool", "content": "1", "tool_call_id": "d"})))
            => invalid_value "messages[2].tool_call_id";
        (history("{}", json!({"role": "tool", "tool_call_id": "c"})))
            => missing_required_parameter "messages[2].content";
        (history(&long, json!({"role": "user", "content": "1"})))
            => invalid_value "messages[1].tool_calls[0].function.arguments";
    };
    server.refuses(CHAT, &cases).await;
    server.until_idle().await;
}

#[tokio::test]
async fn tools_are_refused_where_the_template_shows_another_format() {
    let template = "{{ tools }}{% if false %}[TOOL_CALLS]{% endif %}{{ messages }}";
    let server = wide_server_where(|options| options.template = Some(template));
    let fields = json!({"tools": tools()});
    let code = "unsupported_parameter";
    let message = server.refused(CHAT, &fields, code, "tools").await;
    assert!(message.contains("[TOOL_CALLS]"), "{message}");
    server.chat(json!({})).await;
    let none = merge(fields.clone(), json!({"tool_choice": "none"}));
    server.chat(none).await;
    let server = wide_server_where(|options| {
        options.template = Some(template);
        options.formats.tools = Some(ToolFormat::Json);
    });
    server.chat(fields).await;
}

/// A schema that no grammar follows wholly is served under `auto` and named in a header; it is refused
/// by name where calls are required or the function is strict.
#[tokio::test]
async fn schemas_that_calls_do_not_follow_are_told_or_refused() {
    let server = wide_server();
    let unique = json!({"type": "object", "properties": {
        "tags": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}}});
    let whole =
        json!({"type": "object", "properties": {"a": {"type": "string", "format": "binary"}}});
    for (parameters, told) in [
        (unique, Some("f.properties.tags.uniqueItems")),
        (json!({"$ref": "https://example.com/schema"}), Some("f")),
        // Arguments are objects, whatever the schema allows.
        (json!({"anyOf": [{"type": "string"}]}), Some("f")),
        (json!({"enum": [1]}), Some("f")),
        (whole, None),
    ] {
        let loose = function(json!({"name": "f", "parameters": parameters}));
        let strict = json!({"name": "f", "parameters": parameters, "strict": true});
        let body = chat(merge(loose.clone(), json!({"max_tokens": 40}))).to_string();
        let reply = server.send("POST", CHAT, &[], body).await;
        assert_eq!(reply.status, 200, "{parameters}");
        assert_eq!(reply.header("x-unenforced"), told, "{parameters}");
        let required = json!({"tool_choice": "required", "max_tokens": 300});
        for fields in [merge(loose, required), function(strict)] {
            if told.is_some() {
                let param = "tools[0].function.parameters";
                server.refused(CHAT, &fields, "invalid_value", param).await;
            } else {
                server.chat(merge(fields, json!({"max_tokens": 300}))).await;
            }
        }
    }
    server.until_idle().await;
}
