//! OpenAI's Responses: the same answers as chats, in its own objects and events.

use axum::http::StatusCode;
use serde_json::{Value, json};
use text::ReasoningFormat;

use crate::common::translated::{RESPONSES, wide_server};
use crate::common::{Options, named_events, server_with};

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
    let text = &chat["choices"][0]["message"]["content"];
    let items = json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]);
    for input in [json!("Hi"), items] {
        let answer = RESPONSES
            .ask(
                &server,
                json!({"input": input, "instructions": "Be brief.",
            "metadata": {"a": "b"}, "temperature": 0, "store": false}),
            )
            .await;
        assert!(answer["id"].as_str().unwrap().starts_with("resp-"));
        assert_eq!(answer["object"], "response");
        assert_eq!(answer["output"][0]["content"][0]["text"], *text);
        assert_eq!(answer["metadata"], json!({"a": "b"}));
        let usage = &answer["usage"];
        assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
        assert_eq!(usage["output_tokens"], chat["usage"]["completion_tokens"]);
        assert_eq!(usage["total_tokens"], chat["usage"]["total_tokens"]);
        assert!(usage["diffusion"]["forwards"].as_u64().unwrap() > 0);
        let is_cut = chat["choices"][0]["finish_reason"] == "length";
        assert_eq!(answer["status"] == "incomplete", is_cut);
    }
}

#[tokio::test]
async fn a_budget_that_ends_is_incomplete() {
    let answer = RESPONSES
        .ask(
            &wide_server(),
            json!({"max_output_tokens": 1, "text": {"format": {"type": "json_object"}}}),
        )
        .await;
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(answer["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn a_schema_is_followed() {
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [4, 5]}}, "required": ["x"]});
    let text =
        json!({"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": true}});
    let answer = RESPONSES.ask(&wide_server(), json!({"text": text})).await;
    let said = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    let value: Value = serde_json::from_str(said).unwrap();
    assert!(
        [json!({"x": 4}), json!({"x": 5})].contains(&value),
        "{said}"
    );
    assert_eq!(answer["text"], text);
}

#[tokio::test]
async fn a_loop_of_calls_goes_through() {
    let server = wide_server();
    let tools = json!([tool()]);
    let first = RESPONSES
        .ask(
            &server,
            json!({"tools": tools, "tool_choice": "required",
        "parallel_tool_calls": false}),
        )
        .await;
    let call = &first["output"][0];
    assert_eq!(call["type"], "function_call");
    assert_eq!(call["name"], "add");
    assert_eq!(call["status"], "completed");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!((1..=3).contains(&arguments["a"].as_i64().unwrap()));
    let named = json!({"type": "function", "name": "add"});
    let again = RESPONSES
        .ask(&server, json!({"tools": tools, "tool_choice": named}))
        .await;
    assert_eq!(again["output"].as_array().unwrap().len(), 1);
    assert_eq!(again["tool_choice"], named);
    let input = json!([
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "7"},
    ]);
    let second = RESPONSES
        .ask(
            &server,
            json!({"input": input, "tools": tools, "tool_choice": "none"}),
        )
        .await;
    assert_eq!(second["output"][0]["type"], "message");
}

/// The types of the events of a stream, repeated deltas once, after a check of their numbers.
fn kinds(events: &[(String, Value)]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for (number, (name, event)) in events.iter().enumerate() {
        assert_eq!(event["type"], **name);
        assert_eq!(event["sequence_number"], number);
        if !(name.ends_with(".delta") && kinds.last() == Some(name)) {
            kinds.push(name.clone());
        }
    }
    kinds
}

fn joined(events: &[(String, Value)], name: &str) -> String {
    let deltas = events.iter().filter(|(kind, _)| kind == name);
    deltas
        .map(|(_, event)| event["delta"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_events_of_a_text_come_in_order() {
    let server = wide_server();
    let plain = RESPONSES
        .ask(
            &server,
            json!({"text": {"format": {"type": "json_object"}}}),
        )
        .await;
    let streamed =
        RESPONSES.body(&json!({"stream": true, "text": {"format": {"type": "json_object"}}}));
    let events = named_events(&server.stream(RESPONSES.path, &streamed).await);
    let last = format!("response.{}", plain["status"].as_str().unwrap());
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        &last,
    ];
    assert_eq!(kinds(&events), expected);
    let text = &plain["output"][0]["content"][0]["text"];
    assert_eq!(*text, joined(&events, "response.output_text.delta"));
    let done = &events.last().unwrap().1["response"];
    assert_eq!(done["output"][0]["content"], plain["output"][0]["content"]);
    assert_eq!(events[0].1["response"]["status"], "in_progress");
    assert_eq!(events[0].1["response"]["output"], json!([]));
}

#[tokio::test]
async fn the_events_of_a_call_come_in_order() {
    let server = wide_server();
    let streamed = RESPONSES.body(
        &json!({"stream": true, "tools": [tool()], "tool_choice": "required",
        "parallel_tool_calls": false}),
    );
    let events = named_events(&server.stream(RESPONSES.path, &streamed).await);
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds(&events), expected);
    let added = &events[2].1["item"];
    assert_eq!(
        (&added["name"], &added["arguments"]),
        (&json!("add"), &json!(""))
    );
    let done = &events.last().unwrap().1["response"]["output"][0];
    assert_eq!(
        done["arguments"],
        joined(&events, "response.function_call_arguments.delta")
    );
    assert_eq!(done["call_id"], added["call_id"]);
}

#[tokio::test]
async fn reasoning_is_an_item_of_its_own() {
    let mut options = Options::default();
    options.formats.reasoning = Some(ReasoningFormat::Think);
    let server = server_with(options);
    let grammar = json!({"grammar": "start: \"<think>Long.</think>Short.\"", "stream": true});
    let events = named_events(
        &server
            .stream(RESPONSES.path, &RESPONSES.body(&grammar))
            .await,
    );
    assert_eq!(joined(&events, "response.reasoning_text.delta"), "Long.");
    assert_eq!(joined(&events, "response.output_text.delta"), "Short.");
    let output = &events.last().unwrap().1["response"]["output"];
    assert_eq!(
        (&output[0]["type"], &output[1]["type"]),
        (&json!("reasoning"), &json!("message"))
    );
}

#[tokio::test]
async fn a_failure_after_the_start_is_an_event() {
    let options = Options {
        failing: vec![1],
        ..Options::default()
    };
    let stream = server_with(options)
        .stream(RESPONSES.path, &RESPONSES.body(&json!({"stream": true})))
        .await;
    let events = named_events(&stream);
    let (name, error) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(error["code"], "internal_error");
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = wide_server();
    let cases = [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (
            json!({"input": [{"role": "tool", "content": "x"}]}),
            "input[0].role",
        ),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
            "input[0].call_id",
        ),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": 100_000}), "max_output_tokens"),
        (json!({"store": true}), "store"),
        (json!({"background": true}), "background"),
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [tool(), tool()]}), "tools[1].name"),
        (
            json!({"tools": [{"type": "function", "name": "f", "parameters": {"$ref": "x"}, "strict": true}]}),
            "tools[0].parameters",
        ),
        (
            json!({"tools": [tool()], "tool_choice": {"type": "function", "name": "f"}}),
            "tool_choice.name",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x"}}}),
            "text.format.schema",
        ),
        (
            json!({"text": {"format": {"type": "yaml"}}}),
            "text.format.type",
        ),
        (json!({"n": 2}), "n"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"diffusion": {"preset": "x"}}), "diffusion.preset"),
    ];
    for (fields, param) in cases {
        let (status, answer) = server.post(RESPONSES.path, &RESPONSES.body(&fields)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{param}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
    let (status, answer) = server
        .post(RESPONSES.path, &RESPONSES.body(&json!({"model": "gpt-4o"})))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    server.until_idle().await;
}
