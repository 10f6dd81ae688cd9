//! `messages`: a chat of text messages, of calls and of their answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use text::{Message, PastCall};

use super::body::{MAX_VALUES, required};
use super::schema::{named, schema};
use super::tool_choice::FunctionType;
use super::types::{List, Object, Required, text_or_list};
use crate::error::{ApiError, ErrorCode, clip};

/// Between the texts of parts, as in vLLM and llama.cpp.
pub const BETWEEN_PARTS: &str = "\n";
/// The forms of a text, for errors.
const TEXTS: &str = "a string or a list of text parts";

/// `messages`.
pub type Messages = List<Object<MessageFields>>;

/// One message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatMessage")]
pub struct MessageFields {
    role: Required<Role>,
    /// Required but for the assistant.
    content: Option<Content>,
    /// The assistant's refusal, its text where it has no content.
    refusal: Option<String>,
    /// The name of the speaker, for templates that show it.
    name: Option<String>,
    /// The assistant's reasoning, for templates that show it.
    reasoning_content: Option<String>,
    /// The assistant's calls.
    tool_calls: Option<List<Object<CallFields>>>,
    /// The call that a message of the role `tool` answers.
    tool_call_id: Option<String>,
}

/// `content`: a string, or parts.
#[derive(Clone, Debug)]
enum Content {
    Text(String),
    Parts(Vec<Object<PartFields>>),
}

/// One part. Its type names the field that it needs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatPart")]
struct PartFields {
    #[serde(rename = "type")]
    kind: Required<PartKind>,
    /// The text of a `text` part.
    text: Option<String>,
    /// The text of a `refusal` part, which only the assistant has.
    refusal: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum PartKind {
    Text,
    Refusal,
}

named!(PartKind { "text" => Self::Text, "refusal" => Self::Refusal });

schema!(Content, generator => {
    let part = generator.subschema_for::<PartFields>();
    json_schema!({"anyOf": [
        {"type": "string"},
        {"type": "array", "items": part},
    ]})
});

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(ContentParts(Self::Text(text)));
        text_or_list(deserializer, TEXTS, text).map(|content| content.0)
    }
}

/// The list form of a content.
struct ContentParts(Content);

impl<'de> Deserialize<'de> for ContentParts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|parts| Self(Content::Parts(parts)))
    }
}

impl Content {
    /// The joined text in a message of `role`, the request field `param`.
    fn text(self, role: Role, param: &str) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |(index, Object(part)): (usize, Object<PartFields>)| {
            let (field, text) = match part.kind.0 {
                PartKind::Text => ("text", part.text),
                PartKind::Refusal if role == Role::Assistant => ("refusal", part.refusal),
                PartKind::Refusal => {
                    let param = format!("{param}[{index}].type");
                    let rest = "must be text in a message of this role, got \"refusal\"";
                    return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
                }
            };
            text.ok_or_else(|| required(&format!("{param}[{index}].{field}")))
        };
        let texts = parts.into_iter().enumerate().map(text);
        Ok(texts.collect::<Result<Vec<_>, _>>()?.join(BETWEEN_PARTS))
    }
}

/// A call in the history.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatCall")]
struct CallFields {
    /// Unique in the history.
    id: Required<String>,
    #[serde(rename = "type")]
    _type: Option<FunctionType>,
    function: Required<Object<FunctionFields>>,
}

/// The function of a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatCalledFunction")]
struct FunctionFields {
    name: Required<String>,
    /// The text of a JSON object; absent or empty = no argument.
    arguments: Option<String>,
}

/// The chat of `messages`, at least one.
///
/// # Errors
/// No message, one of another role than the assistant's without content, a faulty call, or a
/// message of a tool without its call.
pub fn chat(messages: Messages) -> Result<Vec<Message>, ApiError> {
    if messages.0.is_empty() {
        let (code, rest) = (ErrorCode::InvalidValue, "must not be empty");
        return Err(ApiError::field(code, "messages", rest));
    }
    let mut history = History::default();
    let message = |(index, Object(message)): (usize, Object<MessageFields>)| {
        let param = format!("messages[{index}]");
        history.message(message, &param)
    };
    let messages = messages.0.into_iter().enumerate().map(message);
    messages.collect()
}

/// The calls of a history, for the messages that answer them.
#[derive(Debug)]
pub struct History {
    /// The functions by the ids of their calls.
    names: HashMap<String, String>,
    /// Values that arguments may still have.
    values: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { names: HashMap::new(), values: MAX_VALUES }
    }
}

impl History {
    /// The message of `fields`, the request field `param`.
    fn message(&mut self, fields: MessageFields, param: &str) -> Result<Message, ApiError> {
        let Required(role) = fields.role;
        let content = match (fields.content, role) {
            (Some(content), _) => content.text(role, &format!("{param}.content"))?,
            (None, Role::Assistant) => fields.refusal.unwrap_or_default(),
            (None, _) => return Err(required(&format!("{param}.content"))),
        };
        let mut message =
            Message { name: fields.name, ..Message::new(role.template_name(), &content) };
        match role {
            Role::Assistant => {
                message.reasoning = fields.reasoning_content;
                let calls = fields.tool_calls.map(|List(calls)| calls).unwrap_or_default();
                for (index, Object(call)) in calls.into_iter().enumerate() {
                    let Required(Object(function)) = call.function;
                    let name = function.name.0;
                    let arguments = function.arguments.unwrap_or_default();
                    let param = format!("{param}.tool_calls[{index}].function.arguments");
                    message.calls.push(self.call(call.id.0, name, &param, arguments)?);
                }
            }
            Role::Tool => {
                let id_field = format!("{param}.tool_call_id");
                let id = fields.tool_call_id.ok_or_else(|| required(&id_field))?;
                message.name = Some(self.answered(&id, &id_field)?);
                message.call_id = Some(id);
            }
            Role::System | Role::User => {}
        }
        Ok(message)
    }

    /// The call `id` of the function `name` with arguments that the request field `param` has as
    /// text. A blank text is an object without members; a text that is no JSON object, such as the
    /// arguments of an answer that its budget cut, reaches the chat template as it is.
    ///
    /// # Errors
    /// Arguments that are too large.
    pub fn call(
        &mut self,
        id: String,
        name: String,
        param: &str,
        arguments: String,
    ) -> Result<PastCall, ApiError> {
        // A value is at least one character before a comma, a colon or a bracket.
        let values = arguments.bytes().filter(|byte| b",:[{".contains(byte)).count();
        self.values = self.values.checked_sub(values + 1).ok_or_else(|| {
            let (code, rest) = (ErrorCode::InvalidValue, "has too many values");
            ApiError::field(code, param, rest)
        })?;
        let object = match arguments.trim() {
            "" => Ok(Map::new()),
            text => serde_json::from_str(text),
        };
        let arguments = object.map_or(Value::String(arguments), Value::Object);
        Ok(self.called(id, name, arguments))
    }

    /// The call `id` of the function `name`.
    pub fn called(&mut self, id: String, name: String, arguments: Value) -> PastCall {
        self.names.insert(id.clone(), name.clone());
        PastCall { id, name, arguments }
    }

    /// The function whose call `id` the request field `param` names.
    ///
    /// # Errors
    /// No call before has this id.
    pub fn answered(&self, id: &str, param: &str) -> Result<String, ApiError> {
        self.names.get(id).cloned().ok_or_else(|| {
            let rest = format!("must be the id of a call before, got \"{}\"", clip(id));
            ApiError::field(ErrorCode::InvalidValue, param, rest)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    /// The name that chat templates use.
    fn template_name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

named!(Role {
    "system" => Self::System,
    "developer" => Self::System,
    "user" => Self::User,
    "assistant" => Self::Assistant,
    "tool" => Self::Tool,
});

/// A string, or the joined text of text parts whose type is `T`.
#[derive(Clone, Debug)]
pub struct Texts<T>(pub String, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Texts<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(JoinedText(text, PhantomData));
        let joined: JoinedText<T> = text_or_list(deserializer, TEXTS, text)?;
        Ok(Self(joined.0, PhantomData))
    }
}

/// The joined text of a list of text parts.
struct JoinedText<T>(String, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JoinedText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts: Vec<Object<TextPart<T>>> = Vec::deserialize(deserializer)?;
        let texts = parts.into_iter().map(|Object(part)| part.text.0);
        Ok(Self(texts.collect::<Vec<_>>().join(BETWEEN_PARTS), PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Texts<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Texts_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let part = generator.subschema_for::<TextPart<T>>();
        json_schema!({"anyOf": [
            {"type": "string"},
            {"type": "array", "items": part},
        ]})
    }
}

/// A part whose type is `T`.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct TextPart<T> {
    #[serde(rename = "type")]
    _type: Required<T>,
    /// Or `refusal`, of a part with this type.
    #[serde(alias = "refusal")]
    text: Required<String>,
}

/// `type` of a text part.
#[derive(Clone, Copy, Debug)]
pub struct TextType;

named!(TextType { "text" => Self });

/// `type` of a text part of Responses, which has several names of it.
#[derive(Clone, Copy, Debug)]
pub struct AnyTextType;

named!(AnyTextType {
    "text" => Self,
    "input_text" => Self,
    "output_text" => Self,
    "refusal" => Self,
});

/// The texts of Responses.
pub type AnyTexts = Texts<AnyTextType>;
