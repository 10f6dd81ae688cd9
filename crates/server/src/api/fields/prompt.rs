//! `prompt` of `/v1/completions`: a string, a list of strings, a list of token ids or a list of
//! such lists.

use std::fmt;

use schemars::json_schema;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use step::TokenId;

use super::body::JsonBody;
use super::numbers::TokenNumber;
use super::schema::schema;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::generation::Input;

const EMPTY: &str = "must not be empty";

/// The kind of a body's prompt, where an endpoint reads both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// `prompt`, or none.
    Prompt,
    /// `messages`.
    Messages,
}

impl PromptKind {
    /// The prompt of `body`, whatever its type.
    ///
    /// # Errors
    /// Both prompts.
    pub fn find(body: &JsonBody<'_>) -> Result<Self, ApiError> {
        let has = |field: &str| body.fields().any(|(name, _)| name == field);
        match (has("prompt"), has("messages")) {
            (_, false) => Ok(Self::Prompt),
            (false, true) => Ok(Self::Messages),
            (true, true) => {
                let rest = "must not be given together with prompt";
                let code = ErrorCode::InvalidValue;
                Err(ApiError::field(code, "messages", rest))
            }
        }
    }
}

/// The four forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A string.
    Text(String),
    /// Strings, at least one.
    Texts(Vec<String>),
    /// Token ids, at least one.
    Ids(Vec<TokenNumber>),
    /// Lists of token ids, each of at least one.
    IdLists(Vec<IdList>),
}

impl Prompt {
    /// The prompts; texts may still encode to nothing.
    ///
    /// # Errors
    /// A token id of at least `vocab_size`.
    pub fn input(self, vocab_size: u32) -> Result<Input, ApiError> {
        match self {
            Self::Text(text) => Ok(Input::Texts(vec![text])),
            Self::Texts(texts) => Ok(Input::Texts(texts)),
            Self::Ids(list) => Ok(Input::Ids(vec![token_ids(&list, vocab_size, "prompt")?])),
            Self::IdLists(lists) => {
                let lists = lists.into_iter().enumerate();
                let lists = lists.map(|(index, IdList(list))| {
                    token_ids(&list, vocab_size, &format!("prompt[{index}]"))
                });
                lists.collect::<Result<_, _>>().map(Input::Ids)
            }
        }
    }
}

/// `numbers` of the field `param` as token ids.
///
/// # Errors
/// A number outside `0..vocab_size`.
pub fn token_ids(
    numbers: &[TokenNumber],
    vocab_size: u32,
    param: &str,
) -> Result<Vec<TokenId>, ApiError> {
    let check = |(index, number): (usize, &TokenNumber)| {
        let id = TokenId::try_from(number.0).ok();
        id.filter(|id| *id < vocab_size).ok_or_else(|| {
            let last = vocab_size.saturating_sub(1);
            let rest = format!("must be a token id in 0..{last}, got {}", number.0);
            ApiError::field(ErrorCode::InvalidValue, format!("{param}[{index}]"), rest)
        })
    };
    numbers.iter().enumerate().map(check).collect()
}

schema!(Prompt, generator => {
    let id = generator.subschema_for::<TokenNumber>();
    let ids = json!({"type": "array", "items": id, "minItems": 1});
    json_schema!({"anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ids,
        {"type": "array", "items": ids, "minItems": 1},
    ]})
});

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptVisitor)
    }
}

struct PromptVisitor;

impl<'de> Visitor<'de> for PromptVisitor {
    type Value = Prompt;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("a string, a list of strings, a list of token ids or a list of such lists")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompt, E> {
        Ok(Prompt::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Prompt, E> {
        Ok(Prompt::Text(text))
    }

    /// The first member decides the form of all others.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompt, A::Error> {
        match list.next_element()? {
            None => Err(A::Error::custom(EMPTY)),
            Some(First::Text(first)) => rest(first, list).map(Prompt::Texts),
            Some(First::Id(first)) => rest(first, list).map(Prompt::Ids),
            Some(First::Ids(first)) => rest(first, list).map(Prompt::IdLists),
        }
    }
}

/// `first` and all that follows it.
fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    first: T,
    mut list: A,
) -> Result<Vec<T>, A::Error> {
    let mut items = vec![first];
    while let Some(item) = list.next_element()? {
        items.push(item);
    }
    Ok(items)
}

/// The first member of a list of prompts or token ids.
enum First {
    Text(String),
    Id(TokenNumber),
    Ids(IdList),
}

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FirstVisitor)
    }
}

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = First;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a token id or a list of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<First, E> {
        Ok(First::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<First, E> {
        Ok(First::Id(TokenNumber(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<First, E> {
        TokenNumber::new(number).map(First::Id)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<First, E> {
        TokenNumber::float(number).map(First::Id)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<First, A::Error> {
        IdListVisitor.visit_seq(list).map(First::Ids)
    }
}

/// Token ids, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdList(Vec<TokenNumber>);

impl<'de> Deserialize<'de> for IdList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdListVisitor)
    }
}

struct IdListVisitor;

impl<'de> Visitor<'de> for IdListVisitor {
    type Value = IdList;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IdList, A::Error> {
        match list.next_element()? {
            None => Err(A::Error::custom(EMPTY)),
            Some(first) => rest(first, list).map(IdList),
        }
    }
}
