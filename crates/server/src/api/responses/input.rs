//! `input`: a text, or items: messages, calls and their outputs.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer};
use text::Message;

use crate::api::fields::body::required;
use crate::api::fields::messages::{AnyTexts, History};
use crate::api::fields::schema::{named, schema};
use crate::api::fields::types::{Object, text_or_list};
use crate::error::{ApiError, ErrorCode};

/// `input`.
#[derive(Clone, Debug)]
pub enum Input {
    /// One message of the user.
    Text(String),
    /// A history.
    Items(Vec<Object<Item>>),
}

/// One item. Its type decides which fields it needs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesItem")]
pub struct Item {
    /// `message` by default; `reasoning` is not shown to the model, `item_reference` is refused.
    #[serde(rename = "type")]
    kind: Option<Kind>,
    /// The role of a `message`.
    role: Option<Role>,
    /// The content of a `message`.
    content: Option<AnyTexts>,
    /// The id that a `function_call` and its output share.
    call_id: Option<String>,
    /// The function of a `function_call`.
    name: Option<String>,
    /// The arguments of a `function_call`, the text of a JSON object; absent or empty = no argument.
    arguments: Option<String>,
    /// The result in a `function_call_output`.
    output: Option<AnyTexts>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Message,
    Call,
    Output,
    Reasoning,
    Reference,
}

named!(Kind {
    "message" => Self::Message,
    "function_call" => Self::Call,
    "function_call_output" => Self::Output,
    "reasoning" => Self::Reasoning,
    "item_reference" => Self::Reference,
});

/// A role of a message, by its name in chat templates.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Role(pub(in crate::api) &'static str);

named!(Role {
    "user" => Self("user"),
    "assistant" => Self("assistant"),
    "system" => Self("system"),
    "developer" => Self("system"),
});

impl Input {
    /// The chat: calls belong to the message of the assistant before them.
    ///
    /// # Errors
    /// No item, an item without its fields, a faulty call, an output without its call.
    pub fn messages(self) -> Result<Vec<Message>, ApiError> {
        let items = match self {
            Self::Text(text) => return Ok(vec![Message::new("user", &text)]),
            Self::Items(items) => items,
        };
        let (mut messages, mut history) = (Vec::new(), History::default());
        for (index, Object(item)) in items.into_iter().enumerate() {
            let param = |field: &str| format!("input[{index}].{field}");
            let need =
                |field: &str, given: Option<String>| given.ok_or_else(|| required(&param(field)));
            match item.kind.unwrap_or(Kind::Message) {
                Kind::Message => {
                    let Role(role) = item.role.ok_or_else(|| required(&param("role")))?;
                    let content = item.content.ok_or_else(|| required(&param("content")))?;
                    messages.push(Message::new(role, &content.0));
                }
                Kind::Call => {
                    let id = need("call_id", item.call_id)?;
                    let name = need("name", item.name)?;
                    let arguments = item.arguments.unwrap_or_default();
                    let call = history.call(id, name, &param("arguments"), arguments)?;
                    assistant(&mut messages).calls.push(call);
                }
                Kind::Output => {
                    let id = need("call_id", item.call_id)?;
                    let output = item.output.ok_or_else(|| required(&param("output")))?;
                    messages.push(Message {
                        name: Some(history.answered(&id, &param("call_id"))?),
                        call_id: Some(id),
                        ..Message::new("tool", &output.0)
                    });
                }
                // Reasoning of former answers is not shown to the model.
                Kind::Reasoning => {}
                Kind::Reference => {
                    let rest = "must not be item_reference: this server stores no answers; send the item \
                                itself, as clients do with store = false";
                    return Err(ApiError::field(ErrorCode::UnsupportedValue, param("type"), rest));
                }
            }
        }
        match messages.is_empty() {
            true => {
                let (code, rest) = (ErrorCode::InvalidValue, "must have a message");
                Err(ApiError::field(code, "input", rest))
            }
            false => Ok(messages),
        }
    }
}

/// The last message if it is the assistant's, else a new one of it.
pub(in crate::api) fn assistant(messages: &mut Vec<Message>) -> &mut Message {
    let is_open = messages.last().is_some_and(|last| last.role == "assistant");
    if !is_open {
        messages.push(Message::new("assistant", ""));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

schema!(Input, generator => {
    let item = generator.subschema_for::<Item>();
    json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": item}]})
});

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(InputItems(Self::Text(text)));
        text_or_list(deserializer, "a string or a list of items", text).map(|input| input.0)
    }
}

/// The list form of an input.
struct InputItems(Input);

impl<'de> Deserialize<'de> for InputItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|items| Self(Input::Items(items)))
    }
}
