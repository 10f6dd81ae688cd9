//! Tools for a chat template that knows none: they become plain text.

use serde_json::{Map, Value, json};

use super::{ToolFormat, tags};
use crate::python_json::{Style, to_json};
use crate::{Conversation, Message};

/// `conversation` for a template that knows no tools: a system text lists the tools and says how to
/// call them, calls become the text of their message, and answers of tools become messages of the
/// user between `<tool_response>` and `</tool_response>`.
pub fn plain_conversation(conversation: &Conversation, format: ToolFormat) -> Conversation {
    let mut messages: Vec<Message> = Vec::with_capacity(conversation.messages.len() + 1);
    if !conversation.tools.is_empty() {
        let text = instructions(&conversation.tools, format);
        messages.push(Message::new("system", &text));
    }
    for message in &conversation.messages {
        let opens = messages.len() == 1 && !conversation.tools.is_empty();
        match (message.role.as_str(), messages.last_mut()) {
            // Templates accept one system message at most.
            ("system", Some(last)) if opens => {
                last.content = format!("{}\n\n{}", message.content, last.content);
            }
            ("tool", last) => {
                let text = format!("<tool_response>\n{}\n</tool_response>", message.content);
                match last {
                    // Answers to several calls are one turn of the user.
                    Some(last)
                        if last.role == "user" && last.content.ends_with("</tool_response>") =>
                    {
                        last.content = format!("{}\n{text}", last.content);
                    }
                    _ => messages.push(Message::new("user", &text)),
                }
            }
            _ => messages.push(with_calls(message, format)),
        }
    }
    Conversation { messages, tools: Vec::new(), variables: conversation.variables.clone() }
}

/// The system text. It is short, because a small context holds it too.
fn instructions(tools: &[Value], format: ToolFormat) -> String {
    let function = |tool: &Value| line(tool.get("function").unwrap_or(tool));
    let lines: Vec<String> = tools.iter().map(function).collect();
    let arguments = match format {
        ToolFormat::Gemma => json!("{key:value}"),
        ToolFormat::Qwen3Coder => json!({"KEY": "value"}),
        _ => json!("{..}"),
    };
    let call = written(format, "NAME", &arguments);
    format!("Functions:\n{}\nTo call one, answer:\n{call}", lines.join("\n"))
}

/// `message` with its calls at the end of its text.
fn with_calls(message: &Message, format: ToolFormat) -> Message {
    let mut parts: Vec<String> = Vec::new();
    if !message.content.is_empty() {
        parts.push(message.content.clone());
    }
    for call in &message.calls {
        parts.push(written(format, &call.name, &call.arguments));
    }
    Message { content: parts.join("\n"), calls: Vec::new(), call_id: None, ..message.clone() }
}

/// A call in the text of an answer. Arguments that are a text stand there as they are.
fn written(format: ToolFormat, name: &str, arguments: &Value) -> String {
    let text_or = |write: fn(&Value) -> String| match arguments {
        Value::String(text) => text.clone(),
        other => write(other),
    };
    let marks = format.marks();
    match format {
        ToolFormat::Gemma => {
            let arguments = text_or(gemma);
            format!("<|tool_call>call:{name}{arguments}{}", marks.close)
        }
        ToolFormat::Qwen3Coder => {
            let members = match arguments {
                Value::Object(members) => members.clone(),
                text => Map::from_iter([("arguments".to_owned(), text.clone())]),
            };
            let call = tags::written(name, &members);
            format!("{}\n{call}{}", marks.open.unwrap_or_default(), marks.close)
        }
        _ => {
            let open = marks.open.map_or(String::new(), |open| format!("{open}\n"));
            let (key, arguments) = (marks.arguments, text_or(line));
            format!("{open}{{\"name\": \"{name}\", \"{key}\": {arguments}}}{}", marks.close)
        }
    }
}

/// `value` as Gemma writes it.
fn gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(gemma).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| format!("{name}:{}", gemma(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// `value` on one line, as templates write it.
fn line(value: &Value) -> String {
    // A JSON value always has a text.
    to_json(value, &Style::default()).unwrap_or_else(|_| json!(null).to_string())
}
