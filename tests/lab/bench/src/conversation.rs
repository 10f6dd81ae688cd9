//! The conversation of a prompt: one message of the user, or the JSON of a problem of calls.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use text::{Conversation, Message, PastCall, Tokenizer, ToolFormat, plain_conversation};

/// The members `messages` and `tools` of a chat request for `prompt`; null where it has no tools.
pub(crate) fn members(prompt: &str) -> (Value, Value) {
    let parsed: Option<Value> =
        prompt.starts_with("{\"").then(|| serde_json::from_str(prompt).ok()).flatten();
    match parsed {
        Some(mut request) if request["messages"].is_array() => {
            (request["messages"].take(), request["tools"].take())
        }
        _ => (json!([{"role": "user", "content": prompt}]), Value::Null),
    }
}

/// The ids of the conversation of `prompt` up to the answer's first token.
///
/// # Errors
/// A tokenizer without a chat template, a text that cannot be encoded, JSON that is no conversation.
pub(crate) fn ids(prompt: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let (messages, tools) = members(prompt);
    let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut conversation = Conversation::new(
        messages
            .iter()
            .map(message)
            .collect::<Option<_>>()
            .context("prompt: expected messages with a role and a content")?,
    );
    conversation.tools = tools.as_array().cloned().unwrap_or_default();
    let template = tokenizer.chat_template()?;
    if !template.has_tools(!conversation.tools.is_empty()) {
        let format = ToolFormat::of_template(template.tool_source());
        let format = format.unwrap_or(ToolFormat::Hermes);
        conversation = plain_conversation(&conversation, format);
    }
    let text = template.render_conversation(&conversation, true)?;
    Ok(tokenizer.encode(&text, false)?)
}

fn message(value: &Value) -> Option<Message> {
    let calls = value["tool_calls"].as_array();
    let calls = calls.map(Vec::as_slice).unwrap_or_default();
    Some(Message {
        calls: calls.iter().map(call).collect::<Option<_>>()?,
        call_id: value["tool_call_id"].as_str().map(str::to_owned),
        ..Message::new(value["role"].as_str()?, value["content"].as_str().unwrap_or_default())
    })
}

fn call(value: &Value) -> Option<PastCall> {
    let function = &value["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str()?).ok()?;
    Some(PastCall {
        id: value["id"].as_str()?.to_owned(),
        name: function["name"].as_str()?.to_owned(),
        arguments: arguments.is_object().then_some(arguments)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use problems::{Split, Task, generate};

    fn demo() -> Tokenizer {
        let file = |name| demo::checkpoint::DEMO.file(name).map(<[u8]>::to_vec);
        let files = text::TokenizerFiles {
            tokenizer: file("tokenizer.json"),
            config: file("tokenizer_config.json"),
            ..Default::default()
        };
        Tokenizer::new(&files).unwrap()
    }

    #[test]
    fn a_text_is_one_message_of_the_user() {
        for prompt in ["Hi", "{\"a\": 1}", "{\"messages\": 3}", "{\""] {
            let (messages, tools) = members(prompt);
            assert_eq!(messages, json!([{"role": "user", "content": prompt}]));
            assert!(tools.is_null());
            let expected = cli::load::chat_ids(prompt, &demo()).unwrap();
            assert_eq!(ids(prompt, &demo()).unwrap(), expected);
        }
    }

    #[test]
    fn a_problem_of_calls_is_rendered_with_its_functions_calls_and_results() {
        let tokenizer = demo();
        for problem in generate(Task::Calls, Split::Eval, 3, 200) {
            let (messages, tools) = members(&problem.prompt);
            let ids = ids(&problem.prompt, &tokenizer).unwrap();
            let shown = tokenizer.decode(&ids, false);
            for tool in tools.as_array().into_iter().flatten() {
                let name = tool["function"]["name"].as_str().unwrap();
                assert!(shown.contains(name), "{shown}");
            }
            for message in messages.as_array().unwrap() {
                let text = message["content"].as_str().unwrap_or_default();
                assert!(shown.contains(text.trim()), "{shown}");
                let call = message["tool_calls"][0]["function"]["arguments"].as_str();
                assert!(shown.contains(call.unwrap_or_default()), "{shown}");
            }
        }
    }

    #[test]
    fn a_conversation_without_roles_is_an_error() {
        let error = ids("{\"messages\":[{\"content\":\"Hi\"}]}", &demo()).unwrap_err();
        assert!(error.to_string().contains("a role"), "{error}");
    }
}
