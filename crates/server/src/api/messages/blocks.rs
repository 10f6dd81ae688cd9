//! `messages`: texts, or lists of content blocks.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use text::Message;

use super::invalid;
use crate::api::fields::body::required;
use crate::api::fields::messages::{BETWEEN_PARTS, History, TextType, Texts};
use crate::api::fields::schema::{named, schema};
use crate::api::fields::types::{List, Object, Required, text_or_list, text_or_object};
use crate::error::ApiError;

/// One message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesMessage")]
pub struct MessageFields {
    role: Required<Role>,
    content: Required<Content>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
    System,
}

named!(Role {
    "user" => Self::User,
    "assistant" => Self::Assistant,
    "system" => Self::System,
});

impl Role {
    /// The name that chat templates use.
    fn template_name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// A text, or blocks.
#[derive(Clone, Debug)]
struct Content(Vec<Object<Block>>);

/// One block. Its type decides which fields it needs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesBlock")]
struct Block {
    /// Required.
    #[serde(rename = "type")]
    kind: Option<Kind>,
    /// The text of a `text` block.
    text: Option<String>,
    /// The text of a `thinking` block.
    thinking: Option<String>,
    /// The id of a `tool_use` block, unique in the history.
    id: Option<String>,
    /// The function of a `tool_use` block.
    name: Option<String>,
    /// The arguments of a `tool_use` block, an object or its text; absent or empty = no argument.
    input: Option<Input>,
    /// The call that a `tool_result` block answers.
    tool_use_id: Option<String>,
    /// The result in a `tool_result` block.
    content: Option<Texts<TextType>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    ToolUse,
    ToolResult,
    Thinking,
    Redacted,
}

named!(Kind {
    "text" => Self::Text,
    "tool_use" => Self::ToolUse,
    "tool_result" => Self::ToolResult,
    "thinking" => Self::Thinking,
    "redacted_thinking" => Self::Redacted,
});

/// `input` of a call.
#[derive(Clone, Debug)]
enum Input {
    Object(Map<String, Value>),
    Text(String),
}

impl Default for Input {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

schema!(Input, _ => json_schema!({"anyOf": [{"type": "object"}, {"type": "string"}]}));

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(InputMembers(Self::Text(text)));
        text_or_object(deserializer, "an object or its text", text).map(|input| input.0)
    }
}

/// The object form of an input.
struct InputMembers(Input);

impl<'de> Deserialize<'de> for InputMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(|members| Self(Input::Object(members)))
    }
}

schema!(Content, generator => {
    let block = generator.subschema_for::<Block>();
    json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": block}]})
});

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a string or a list of content blocks";
        let text = |text| {
            Ok(vec![Object(Block { kind: Some(Kind::Text), text: Some(text), ..Block::default() })])
        };
        text_or_list(deserializer, expected, text).map(Self)
    }
}

/// The chat of `messages`, at least one. Results of calls become messages of the role `tool`.
///
/// # Errors
/// No message, a block without its fields, a result without its call.
pub fn messages(given: List<Object<MessageFields>>) -> Result<Vec<Message>, ApiError> {
    if given.0.is_empty() {
        return Err(invalid("messages", "must not be empty"));
    }
    let (mut messages, mut history) = (Vec::new(), History::default());
    for (index, Object(fields)) in given.0.into_iter().enumerate() {
        let (Required(role), Required(Content(blocks))) = (fields.role, fields.content);
        let mut message = Message::new(role.template_name(), "");
        let (mut has_results, mut has_text) = (false, false);
        for (number, Object(block)) in blocks.into_iter().enumerate() {
            let path = format!("messages[{index}].content[{number}]");
            let is_text = matches!(block.kind, Some(Kind::Text));
            // Citations divide a sentence of the assistant into blocks.
            if is_text && has_text && role != Role::Assistant {
                message.content.push_str(BETWEEN_PARTS);
            }
            has_text |= is_text;
            match block.add_to(&mut message, &mut history, &path)? {
                None => {}
                Some(result) => {
                    has_results = true;
                    messages.push(result);
                }
            }
        }
        // A message of results alone has nothing more to say.
        if !has_results || !message.content.is_empty() {
            messages.push(message);
        }
    }
    Ok(messages)
}

impl Block {
    /// Adds the block at `path` to `message`; a result of a call is a message by itself.
    fn add_to(
        self,
        message: &mut Message,
        history: &mut History,
        path: &str,
    ) -> Result<Option<Message>, ApiError> {
        let param = |field: &str| format!("{path}.{field}");
        let need =
            |field: &str, given: Option<String>| given.ok_or_else(|| required(&param(field)));
        let of_role = |kind: &str, expected: &str| {
            let rest = format!("must not be {kind} in a message of the role {}", message.role);
            (message.role == expected).then_some(()).ok_or_else(|| invalid(&param("type"), &rest))
        };
        match self.kind.ok_or_else(|| required(&param("type")))? {
            Kind::Text => {
                let text = need("text", self.text)?;
                message.content.push_str(&text);
            }
            Kind::ToolUse => {
                of_role("tool_use", "assistant")?;
                let id = need("id", self.id)?;
                let name = need("name", self.name)?;
                let call = match self.input.unwrap_or_default() {
                    Input::Object(input) => history.called(id, name, input.into()),
                    Input::Text(text) => history.call(id, name, &param("input"), text)?,
                };
                message.calls.push(call);
            }
            Kind::ToolResult => {
                of_role("tool_result", "user")?;
                let id = need("tool_use_id", self.tool_use_id)?;
                let content = self.content.map(|texts| texts.0).unwrap_or_default();
                return Ok(Some(Message {
                    name: Some(history.answered(&id, &param("tool_use_id"))?),
                    call_id: Some(id),
                    ..Message::new("tool", &content)
                }));
            }
            Kind::Thinking => {
                let thinking = need("thinking", self.thinking)?;
                message.reasoning.get_or_insert_default().push_str(&thinking);
            }
            Kind::Redacted => {}
        }
        Ok(None)
    }
}
