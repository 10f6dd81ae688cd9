//! `messages`: a chat of text messages.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use text::Message;

use super::body::required;
use super::types::{List, Object, Required, one_of};
use crate::error::{ApiError, ErrorCode};

/// `messages`.
pub type Messages = List<Object<MessageFields>>;

/// One message.
#[derive(Clone, Debug, Deserialize)]
pub struct MessageFields {
    role: Required<Role>,
    content: Option<Content>,
}

/// The chat of `messages`, at least one.
///
/// # Errors
/// No message, or one of another role than the assistant's without content.
pub fn chat(messages: Messages) -> Result<Vec<Message>, ApiError> {
    if messages.0.is_empty() {
        let (code, rest) = (ErrorCode::InvalidValue, "must not be empty");
        return Err(ApiError::field(code, "messages", rest));
    }
    let message = |(index, Object(message)): (usize, Object<MessageFields>)| {
        let Required(role) = message.role;
        let content = match (message.content, role) {
            (Some(Content(text)), _) => text,
            (None, Role::Assistant) => String::new(),
            (None, _) => return Err(required(&format!("messages[{index}].content"))),
        };
        Ok(Message {
            role: role.template_name().to_owned(),
            content,
        })
    };
    let messages = messages.0.into_iter().enumerate().map(message);
    messages.collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
}

impl Role {
    /// The name that chat templates use.
    fn template_name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = [
            ("system", Self::System),
            ("developer", Self::System),
            ("user", Self::User),
            ("assistant", Self::Assistant),
        ];
        one_of(deserializer, &names)
    }
}

/// A string, or the joined text of text parts.
#[derive(Clone, Debug)]
struct Content(String);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor).map(Self)
    }
}

#[derive(Deserialize)]
struct TextPart {
    #[serde(rename = "type")]
    _type: Required<TextType>,
    text: Required<String>,
}

struct TextType;

impl<'de> Deserialize<'de> for TextType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(deserializer, &[("text", ())]).map(|()| Self)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of text parts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<String, A::Error> {
        let mut joined = None::<String>;
        while let Some(Object(part)) = parts.next_element::<Object<TextPart>>()? {
            joined.get_or_insert_default().push_str(&part.text.0);
        }
        joined.ok_or_else(|| A::Error::custom("must not be an empty list"))
    }
}
