//! The chat template that the demo's training writes: functions, calls and results.

use asynclane_text::{Conversation, Message, PastCall, Tokenizer, ToolFormat};
use serde_json::{Value, json};

use crate::fixtures::{DEMO_PAIR, turn, with_template};

const SOURCE: &str = include_str!("../../../demo/training/chat_template.jinja");

fn tokenizer() -> Tokenizer {
    with_template(SOURCE.trim_end()).unwrap()
}

fn function(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "Any.",
        "parameters": parameters}})
}

fn called(content: &str, calls: &[(&str, Value)]) -> Message {
    let call = |(name, arguments): &(&str, Value)| PastCall {
        id: "call_1".to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
    };
    Message { calls: calls.iter().map(call).collect(), ..Message::new("assistant", content) }
}

#[test]
fn functions_are_lines_and_calls_are_tagged_json() {
    let tokenizer = tokenizer();
    let template = tokenizer.chat_template().unwrap();
    assert!(template.has_tools(true));
    let format = ToolFormat::of_template(template.source());
    assert_eq!(format, Ok(ToolFormat::Hermes));
    let numbers = json!({"type": "object", "properties": {
        "b": {"type": "integer", "minimum": 0}, "a": {"type": "number"}}, "required": ["a", "b"]});
    let mixed = json!({"type": "object", "properties": {"city": {"type": "string"},
        "days": {"type": "integer"}, "any": {"anyOf": []}, "either": {"type": ["string",
        "null"]}}});
    let sum = json!({"b": 12, "a": 5});
    let said = [("now", json!({})), ("say", json!({"it": "é \"x\""}))];
    let conversation = Conversation {
        messages: vec![
            Message::new("system", "Be brief."),
            Message::new("user", " What is 12 plus 5? "),
            called("", &[("add", sum)]),
            Message::new("tool", "17"),
            called("So", &said),
        ],
        tools: vec![
            function("add", &numbers),
            function("get_weather", &mixed),
            function("now", &json!({"type": "object"})),
            json!({"type": "function", "function": {"name": "bare"}}),
        ],
        ..Default::default()
    };
    let text = template.render_conversation(&conversation, true).unwrap();
    let functions = "add(\"b\", \"a\")\nget_weather(\"city\": string, \"days\", \"any\", \"either\")\n\
                     now()\nbare()";
    let call = |json: &str| format!("<tool_call>\n{json}\n</tool_call>");
    let add = call(r#"{"name": "add", "arguments": {"b": 12, "a": 5}}"#);
    let now = call(r#"{"name": "now", "arguments": {}}"#);
    let say = call(r#"{"name": "say", "arguments": {"it": "é \"x\""}}"#);
    let expected = [
        turn("tools", functions),
        turn("user", "What is 12 plus 5?"),
        turn("assistant", &add),
        turn("tool", "17"),
        turn("assistant", &format!("So\n{now}\n{say}")),
        "<|start_header_id|>assistant<|end_header_id|>\n\n".to_owned(),
    ];
    assert_eq!(text, format!("<|startoftext|>{}", expected.concat()));
}

#[test]
fn without_functions_nothing_differs_from_a_plain_template() {
    let tokenizer = tokenizer();
    let ours = tokenizer.chat_template().unwrap();
    let plain = DEMO_PAIR.ours.chat_template().unwrap();
    let chats = [
        vec![Message::new("user", "Hi")],
        vec![Message::new("user", " \n ")],
        vec![
            Message::new("system", "Be brief.\n"),
            Message::new("user", "  1, 2\n\n3 "),
            Message::new("assistant", ""),
            Message::new("user", "<tool_call>"),
        ],
        vec![],
    ];
    for chat in chats {
        for prompt in [true, false] {
            let expected = plain.render(&chat, prompt).unwrap();
            assert_eq!(ours.render(&chat, prompt).unwrap(), expected);
        }
    }
}
