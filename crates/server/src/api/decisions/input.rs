//! `input`: a text, or messages, calls and their outputs.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use text::Message;

use super::content::Content;
use super::invalid;
use crate::api::fields::body::required;
use crate::api::fields::messages::History;
use crate::api::fields::schema::{named, schema};
use crate::api::fields::types::{Object, text_or_list};
use crate::api::responses::input::{Role, assistant};
use crate::error::ApiError;

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
#[schemars(rename = "DecisionItem")]
pub struct Item {
    /// `message` by default.
    #[serde(rename = "type")]
    kind: Option<Kind>,
    /// The role of a `message`.
    role: Option<Role>,
    /// The content of a `message`.
    content: Option<Content>,
    /// The id that a call and its output share.
    call_id: Option<String>,
    /// The function or tool of a call.
    name: Option<String>,
    /// The arguments of a `function_call`, the text of a JSON object.
    arguments: Option<String>,
    /// The input of a `custom_tool_call`.
    input: Option<String>,
    /// The result in the output of a call.
    output: Option<Content>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Message,
    Call,
    CustomCall,
    Output,
}

named!(Kind {
    "message" => Self::Message,
    "function_call" => Self::Call,
    "custom_tool_call" => Self::CustomCall,
    "function_call_output" => Self::Output,
    "custom_tool_call_output" => Self::Output,
});

impl Input {
    /// The messages: calls belong to the message of the assistant before them.
    ///
    /// # Errors
    /// No item, an item without its fields, a faulty call, an output without its call.
    pub fn messages(self) -> Result<Vec<Message>, ApiError> {
        let items = match self {
            Self::Text(text) => return Ok(vec![Message::new("user", &text)]),
            Self::Items(items) => items,
        };
        if items.is_empty() {
            return Err(invalid("input", "must have a message"));
        }
        let (mut messages, mut history) = (Vec::new(), History::default());
        for (index, Object(item)) in items.into_iter().enumerate() {
            let param = |field: &str| format!("input[{index}].{field}");
            add(item, &mut messages, &mut history, param)?;
        }
        Ok(messages)
    }
}

/// Adds an item whose field `name` is the request field `param(name)`.
fn add(
    item: Item,
    messages: &mut Vec<Message>,
    history: &mut History,
    param: impl Fn(&str) -> String,
) -> Result<(), ApiError> {
    let need = |field: &str, given: Option<String>| given.ok_or_else(|| required(&param(field)));
    match item.kind.unwrap_or(Kind::Message) {
        Kind::Message => {
            let role = item.role.ok_or_else(|| required(&param("role")))?;
            let Content(content) = item.content.ok_or_else(|| required(&param("content")))?;
            messages.push(Message::new(role.0, &content));
        }
        Kind::Call => {
            let id = need("call_id", item.call_id)?;
            let name = need("name", item.name)?;
            let arguments = item.arguments.unwrap_or_default();
            let call = history.call(id, name, &param("arguments"), arguments)?;
            assistant(messages).calls.push(call);
        }
        Kind::CustomCall => {
            let id = need("call_id", item.call_id)?;
            let name = need("name", item.name)?;
            let input = need("input", item.input)?;
            let call = history.called(id, name, json!({ "input": input }));
            assistant(messages).calls.push(call);
        }
        Kind::Output => {
            let id = need("call_id", item.call_id)?;
            let Content(output) = item.output.ok_or_else(|| required(&param("output")))?;
            messages.push(Message {
                name: Some(history.answered(&id, &param("call_id"))?),
                call_id: Some(id),
                ..Message::new("tool", &output)
            });
        }
    }
    Ok(())
}

schema!(Input, generator => {
    let item = generator.subschema_for::<Item>();
    json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": item}]})
});

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(Items(Self::Text(text)));
        text_or_list(deserializer, "a string or a list of items", text).map(|input| input.0)
    }
}

/// The list form of an input.
struct Items(Input);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|items| Self(Input::Items(items)))
    }
}
