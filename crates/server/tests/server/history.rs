//! Calls of former answers in a history: whole, without arguments, and cut by a budget.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::common::translated::{MESSAGES, RESPONSES, wide};
use crate::common::{Server, chat, server_with};

const CHAT: &str = "/v1/chat/completions";

/// Writes the arguments of calls as most published templates do.
const WRITES: &str = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
    [{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}\
    {{ call.function.arguments | tojson }}{% endif %}]{% endfor %}{% endfor %}{# tools #}";

/// Reads the arguments of calls by name.
const READS: &str = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
    [{% for name, value in call.function.arguments.items() %}{{ name }}={{ value }};{% endfor %}]\
    {% endfor %}{% endfor %}{# tools #}";

/// A request to each endpoint whose history has a call with `arguments`; null = absent.
fn histories(arguments: &Value) -> [(&'static str, Value); 3] {
    let call = json!([{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": arguments}}]);
    let messages = json!([{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": call}]);
    let items = json!([{"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]);
    let blocks = json!([{"role": "user", "content": "Hi"}, {"role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": arguments}]}]);
    let ids = json!({"return_token_ids": true});
    let merge = |mut body: Value, name: &str, value: Value| {
        body[name] = value;
        body
    };
    [
        (CHAT, merge(chat(ids), "messages", messages)),
        (RESPONSES.path, RESPONSES.body(&json!({"input": items}))),
        (MESSAGES.path, MESSAGES.body(&json!({"messages": blocks}))),
    ]
}

/// The text that the model sees of each history.
async fn seen(server: &Server, arguments: &Value) -> String {
    let mut tokens = Vec::new();
    let mut text = String::new();
    for (path, body) in histories(arguments) {
        let (status, answer) = server.post(path, &body).await;
        assert_eq!(status, StatusCode::OK, "{path} {arguments}: {answer}");
        let usage = &answer["usage"];
        let names = ["prompt_tokens", "input_tokens", "cache_read_input_tokens"];
        tokens.push(
            names
                .iter()
                .filter_map(|name| usage[name].as_u64())
                .sum::<u64>(),
        );
        if let Some(ids) = answer["choices"][0]["prompt_token_ids"].as_array() {
            let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            text = server.tokenizer.decode(&ids, false);
        }
    }
    assert!(tokens.iter().all(|count| *count == tokens[0]), "{tokens:?}");
    text
}

#[tokio::test]
async fn arguments_may_be_absent_empty_or_cut() {
    let mut options = wide();
    options.template = Some(WRITES);
    let server = server_with(options);
    let cases = [
        (Value::Null, "Hi[{}]"),
        (json!(""), "Hi[{}]"),
        (json!(" \n"), "Hi[{}]"),
        (json!("{}"), "Hi[{}]"),
        (json!("{\"a\":1}"), "Hi[{\"a\": 1}]"),
        (json!("{\"a\": \"b"), "Hi[{\"a\": \"b]"),
        (json!("[1]"), "Hi[[1]]"),
        (json!("null"), "Hi[null]"),
        (json!("two words"), "Hi[two words]"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(seen(&server, &arguments).await, expected, "{arguments}");
    }
    server.until_idle().await;
}

#[tokio::test]
async fn a_template_that_reads_arguments_by_name_gets_the_text_as_one() {
    let mut options = wide();
    options.template = Some(READS);
    let server = server_with(options);
    for (arguments, expected) in [
        ("{\"a\": 1}", "Hi[a=1;]"),
        ("", "Hi[]"),
        ("{\"a\": ", "Hi[arguments={\"a\": ;]"),
    ] {
        assert_eq!(seen(&server, &json!(arguments)).await, expected);
    }
    server.until_idle().await;
}

#[tokio::test]
async fn a_template_without_tools_shows_the_text_in_every_format() {
    for (name, format) in text::ToolFormat::NAMES {
        let mut options = wide();
        options.formats.tools = Some(format);
        let shown = seen(&server_with(options), &json!("{\"a\": \"b")).await;
        assert!(shown.contains("{\"a\": \"b"), "{name}: {shown}");
    }
}

#[tokio::test]
async fn an_answer_that_its_budget_cut_may_be_sent_back() {
    let server = server_with(wide());
    let parameters =
        json!({"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]});
    let tool = json!({"type": "function", "name": "f", "parameters": parameters});
    for budget in 1..40 {
        let tools = json!({"tools": [{"type": "function", "function": tool}],
            "tool_choice": "required", "max_tokens": budget});
        let answer = server.chat(tools).await;
        let user = json!({"role": "user", "content": "Hi"});
        let back = json!({"messages": [user, answer["choices"][0]["message"], user]});
        server.chat(back).await;

        let fields =
            json!({"tools": [tool], "tool_choice": "required", "max_output_tokens": budget});
        let answer = RESPONSES.ask(&server, fields).await;
        let mut items = vec![user.clone()];
        items.extend(answer["output"].as_array().unwrap().iter().cloned());
        RESPONSES.ask(&server, json!({"input": items})).await;

        let fields = json!({"tools": [{"name": "f", "input_schema": parameters}],
            "tool_choice": {"type": "any"}, "max_tokens": budget});
        let answer = MESSAGES.ask(&server, fields).await;
        let said = json!({"role": "assistant", "content": answer["content"]});
        MESSAGES
            .ask(&server, json!({"messages": [user, said, user]}))
            .await;
    }
    server.until_idle().await;
}
