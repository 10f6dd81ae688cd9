//! OpenAI's Responses: the same answers as chats, in its own objects and events.

use text::ReasoningFormat;

use crate::common::*;

fn tool() -> Value {
    json!({"type": "function", "name": "add", "description": "Adds.", "strict": true,
        "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}},
            "required": ["a"], "additionalProperties": false}})
}

#[tokio::test]
async fn a_text_is_the_answer_of_a_chat() {
    let server = wide_server();
    let chat = json!({"max_tokens": 60, "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"}]});
    let chat = server.chat(chat).await;
    let is_cut = chat["choices"][0]["finish_reason"] == "length";
    let blocks = json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]);
    for input in [json!("Hi"), blocks] {
        let answer = ask!(server, RESPONSES {"input": input, "instructions": "Be brief.",
            "metadata": {"a": "b"}, "temperature": 0, "store": false});
        assert!(answer["id"].as_str().unwrap().starts_with("resp-"));
        assert_eq!(text(&answer), text(&chat));
        assert_eq!(answer["metadata"], json!({"a": "b"}));
        has!(answer, {"object": "response", "usage": {
            "input_tokens": chat["usage"]["prompt_tokens"],
            "output_tokens": chat["usage"]["completion_tokens"],
            "total_tokens": chat["usage"]["total_tokens"]}});
        let forwards = &answer["usage"]["diffusion"]["forwards"];
        assert!(forwards.as_u64().unwrap() > 0);
        assert_eq!(answer["status"] == "incomplete", is_cut);
    }
}

#[tokio::test]
async fn a_budget_that_ends_is_incomplete() {
    let answer = ask!(wide_server(), RESPONSES {"max_output_tokens": 1,
        "text": {"format": {"type": "json_object"}}});
    has!(answer, {"status": "incomplete", "output": [{"status": "incomplete"}],
        "incomplete_details": {"reason": "max_output_tokens"}});
}

#[tokio::test]
async fn a_stop_inside_a_call_is_incomplete() {
    let server = wide_server();
    let fields = json!({"tools": [tool()], "tool_choice": "required", "stop": "}"});
    let answer = server.ask(RESPONSES, fields.clone()).await;
    let cut = json!({"status": "incomplete", "incomplete_details": {"reason": null},
        "output": [{"type": "function_call", "status": "incomplete"}]});
    assert_has(&answer, &cut);
    assert!(answer["incomplete_details"].is_object(), "{answer}");
    let (name, last) = named_events(&server.stream(RESPONSES, fields).await).pop().unwrap();
    assert_eq!(name, "response.incomplete");
    assert_has(&last["response"], &cut);
}

#[tokio::test]
async fn a_loop_of_calls_goes_through() {
    let server = wide_server();
    let tools = json!([tool()]);
    let first = ask!(server, RESPONSES {"tools": tools, "tool_choice": "required",
        "parallel_tool_calls": false});
    let call = &first["output"][0];
    has!(*call, {"type": "function_call", "name": "add", "status": "completed"});
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!((1..=3).contains(&arguments["a"].as_i64().unwrap()));
    let named = json!({"type": "function", "name": "add"});
    let again = ask!(server, RESPONSES {"tools": tools, "tool_choice": named});
    assert_eq!(items(&again["output"]).len(), 1);
    assert_eq!(again["tool_choice"], named);
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [named]});
    let again = ask!(server, RESPONSES {"tools": tools, "tool_choice": allowed});
    has!(again["output"][0], {"type": "function_call", "name": "add"});
    assert_eq!(again["tool_choice"], allowed);
    let second = ask!(server, RESPONSES {"tools": tools, "tool_choice": "none", "input": [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "7"},
    ]});
    assert_eq!(second["output"][0]["type"], "message");
}

/// The events of a stream, after a check of their numbers and types: repeated deltas count once.
async fn streamed(fields: Value, expected: &[&str]) -> Vec<(String, Value)> {
    let events = named_events(&wide_server().stream(RESPONSES, fields).await);
    let mut kinds: Vec<String> = Vec::new();
    for (number, (name, event)) in events.iter().enumerate() {
        assert_eq!(event["type"], **name);
        assert_eq!(event["sequence_number"], number);
        kinds.push(name.strip_prefix("response.").unwrap().to_owned());
    }
    kinds.dedup();
    assert_eq!(kinds, expected);
    events
}

fn joined(events: &[(String, Value)], name: &str) -> String {
    let deltas = events.iter().filter(|(kind, _)| kind == name);
    let texts = deltas.filter_map(|(_, event)| event["delta"].as_str());
    texts.collect()
}

#[tokio::test]
async fn the_events_of_a_text_come_in_order() {
    let fields = json!({"text": {"format": {"type": "json_object"}}});
    let plain = wide_server().ask(RESPONSES, fields.clone()).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        plain["status"].as_str().unwrap(),
    ];
    let events = streamed(fields, &expected).await;
    assert_eq!(text(&plain), joined(&events, "response.output_text.delta"));
    let done = &events.last().unwrap().1["response"];
    assert_eq!(done["output"][0]["content"], plain["output"][0]["content"]);
    has!(events[0].1, {"response": {"status": "in_progress", "output": []}});
}

#[tokio::test]
async fn the_events_of_a_call_come_in_order() {
    let fields = json!({"tools": [tool()], "tool_choice": "required",
        "parallel_tool_calls": false});
    let expected = rows! {
        "created"; "in_progress"; "output_item.added"; "function_call_arguments.delta";
        "function_call_arguments.done"; "output_item.done"; "completed";
    };
    let events = streamed(fields, &expected).await;
    let added = &events[2].1["item"];
    has!(*added, {"name": "add", "arguments": ""});
    let arguments = joined(&events, "response.function_call_arguments.delta");
    has!(events.last().unwrap().1["response"]["output"][0],
        {"arguments": arguments, "call_id": added["call_id"]});
}

/// A history of OpenAI's server may have refusals.
#[tokio::test]
async fn a_refusal_is_a_text_of_the_assistant() {
    let server = wide_server();
    let said = async |part: Value| {
        let user = json!({"role": "user", "content": "Hi"});
        let input = json!([user, {"role": "assistant", "content": [part]}, user]);
        let answer = server.ask(RESPONSES, json!({"input": input})).await;
        (prompt_tokens(&answer), text(&answer).to_owned())
    };
    let refusal = said(json!({"type": "refusal", "refusal": "No."})).await;
    assert_eq!(refusal, said(json!({"type": "output_text", "text": "No."})).await);
}

#[tokio::test]
async fn reasoning_is_an_item_of_its_own() {
    let think = Some(ReasoningFormat::Think);
    let server = server_where(|options| options.formats.reasoning = think);
    let grammar = json!({"grammar": "start: \"<think>Long.</think>Short.\""});
    let events = named_events(&server.stream(RESPONSES, grammar).await);
    assert_eq!(joined(&events, "response.reasoning_text.delta"), "Long.");
    assert_eq!(joined(&events, "response.output_text.delta"), "Short.");
    has!(events.last().unwrap().1,
        {"response": {"output": [{"type": "reasoning"}, {"type": "message"}]}});
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = wide_server();
    let open = json!({"type": "function", "name": "f", "parameters": {"$ref": "x"},
        "strict": true});
    let cases = refusals! {
        {"input": null} => missing_required_parameter "input";
        {"input": []} => invalid_value "input";
        {"input": [{"role": "tool", "content": "x"}]} => invalid_value "input[0].role";
        {"input": [{"role": "user"}]} => missing_required_parameter "input[0].content";
        {"input": [{"type": "item_reference", "id": "x"}]} => unsupported_value "input[0].type";
        {"prompt": {"id": "pmpt_1"}} => unsupported_value "prompt";
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}
            => invalid_value "input[0].content[0].type";
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}
            => invalid_value "input[0].call_id";
        {"max_output_tokens": 0} => invalid_value "max_output_tokens";
        {"max_output_tokens": 100_000} => context_length_exceeded "max_output_tokens";
        {"store": true} => unsupported_value "store";
        {"background": true} => unsupported_value "background";
        {"previous_response_id": "resp_1"} => unsupported_value "previous_response_id";
        {"tools": [{"type": "web_search"}]} => invalid_value "tools[0].type";
        {"tools": [tool(), tool()]} => invalid_value "tools[1].name";
        {"tools": [open]} => invalid_value "tools[0].parameters";
        {"tools": [tool()], "tool_choice": {"type": "function", "name": "f"}}
            => invalid_value "tool_choice.name";
        {"tools": [tool()], "tool_choice": {"type": "allowed_tools", "mode": "auto"}}
            => missing_required_parameter "tool_choice.tools";
        {"tools": [tool()], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}
            => invalid_value "tool_choice.tools";
        {"text": {"format": {"type": "json_schema", "name": "x"}}}
            => missing_required_parameter "text.format.schema";
        {"text": {"format": {"type": "yaml"}}} => invalid_value "text.format.type";
        {"n": 2} => invalid_value "n";
        {"temperature": 3} => invalid_value "temperature";
        {"diffusion": {"preset": "x"}} => invalid_value "diffusion.preset";
    };
    server.refuses(RESPONSES, &cases).await;
    let unknown = body(RESPONSES, json!({"model": "gpt-4o"}));
    let (status, answer) = server.post(RESPONSES, &unknown).await;
    assert_eq!(status, 404, "{answer}");
    assert_error(&answer);
    server.until_idle().await;
}

/// The count is the prompt of the answer, whatever else the body has.
#[tokio::test]
async fn input_tokens_are_those_of_the_answer() {
    let server = wide_server();
    let add = json!({"type": "function", "name": "add", "parameters": {"type": "object"}});
    for extra in [
        json!({}),
        json!({"input": [{"role": "user", "content": "Hi"}], "instructions": "Be brief."}),
        json!({"tools": [add], "tool_choice": "auto", "parallel_tool_calls": true}),
    ] {
        let answer = server.ask(RESPONSES, extra.clone()).await;
        let count = server.ask(INPUT_TOKENS, body(RESPONSES, extra)).await;
        has!(count, {"object": "response.input_tokens"});
        assert_eq!(count["input_tokens"], answer["usage"]["input_tokens"]);
    }
    // A count needs no model.
    let count = server.ask(INPUT_TOKENS, json!({"input": "Hi"})).await;
    assert!(count["input_tokens"].as_u64() > Some(3));
    let refused = refusals! {
        {"model": MODEL} => missing_required_parameter "input";
        {"input": []} => invalid_value "input";
        {"input": "Hi", "previous_response_id": "r"} => unsupported_value "previous_response_id";
    };
    server.refuses(INPUT_TOKENS, &refused).await;
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, INPUT_TOKENS, "ok"), 4.0);
}
