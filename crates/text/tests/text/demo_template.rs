//! The chat template that the demo's training writes: functions, calls and results.

use asynclane_text::{Conversation, Message, PastCall, Tokenizer, TokenizerFiles, ToolFormat};
use serde_json::{Value, json};

use crate::fixtures::{DEMO, DEMO_PAIR, bytes};

const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../demo/training/chat_template.jinja"
);

fn tokenizer() -> Tokenizer {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let files = TokenizerFiles {
        tokenizer: Some(std::fs::read(format!("{DEMO}/tokenizer.json")).unwrap()),
        config: Some(bytes(&json!({"chat_template": source.trim_end()}))),
        ..Default::default()
    };
    Tokenizer::new(&files).unwrap()
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
    Message {
        calls: calls.iter().map(call).collect(),
        ..Message::new("assistant", content)
    }
}

#[test]
fn functions_are_lines_and_calls_are_tagged_json() {
    let tokenizer = tokenizer();
    let template = tokenizer.chat_template().unwrap();
    assert!(template.has_tools(true));
    assert_eq!(
        ToolFormat::of_template(template.source()),
        Ok(ToolFormat::Hermes)
    );
    let numbers = json!({"type": "object", "properties": {
        "b": {"type": "integer", "minimum": 0}, "a": {"type": "number"}}, "required": ["a", "b"]});
    let mixed = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "any": {"anyOf": []},
        "either": {"type": ["string", "null"]}}});
    let sum = json!({"b": 12, "a": 5});
    let conversation = Conversation {
        messages: vec![
            Message::new("system", "Be brief."),
            Message::new("user", " What is 12 plus 5? "),
            called("", &[("add", sum)]),
            Message::new("tool", "17"),
            called(
                "So",
                &[("now", json!({})), ("say", json!({"it": "é \"x\""}))],
            ),
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
    let turn = |role: &str, text: &str| {
        format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>")
    };
    let expected = [
        turn(
            "tools",
            "add(\"b\", \"a\")\nget_weather(\"city\": string, \"days\", \"any\", \"either\")\n\
             now()\nbare()",
        ),
        turn("user", "What is 12 plus 5?"),
        turn(
            "assistant",
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 12, \"a\": 5}}\n</tool_call>",
        ),
        turn("tool", "17"),
        turn(
            "assistant",
            "So\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n\
             {\"name\": \"say\", \"arguments\": {\"it\": \"é \\\"x\\\"\"}}\n</tool_call>",
        ),
        "<|start_header_id|>assistant<|end_header_id|>\n\n".to_owned(),
    ];
    assert_eq!(text, format!("<|startoftext|>{}", expected.concat()));
}

#[test]
fn without_functions_nothing_differs_from_a_plain_template() {
    let tokenizer = tokenizer();
    let (ours, plain) = (
        tokenizer.chat_template().unwrap(),
        DEMO_PAIR.ours.chat_template().unwrap(),
    );
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
