//! One strict JSON value from a body: no duplicate keys, bounded size, integers kept apart.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::error::{ApiError, ErrorCode};

/// Most values besides the members of integer lists, which are stored compactly.
const MAX_VALUES: usize = 1 << 20;

/// A parsed JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number written as an integer, within 64 bits.
    Integer(i64),
    /// Any other number; finite.
    Number(f64),
    /// A string.
    Text(String),
    /// A list of at least one integer and nothing else.
    Integers(Vec<i64>),
    /// Any other list.
    List(Vec<Json>),
    /// An object.
    Object(Object),
}

/// The members of an object by key, in the order of the body: a JSON schema's properties have one.
pub type Object = IndexMap<String, Json>;

impl Json {
    /// The type's name with an article, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Integers(_) | Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl From<&Json> for serde_json::Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::from(*value),
            Json::Integer(value) => Self::from(*value),
            Json::Number(value) => Self::from(*value),
            Json::Text(text) => Self::from(text.as_str()),
            Json::Integers(items) => Self::from_iter(items.iter().copied()),
            Json::List(items) => Self::from_iter(items),
            Json::Object(object) => {
                let members = object.iter();
                Self::from_iter(members.map(|(key, value)| (key.as_str(), Self::from(value))))
            }
        }
    }
}

/// Parses a request body, which must be one JSON object.
///
/// # Errors
/// `invalid_json` for everything else.
pub fn parse_object(body: &[u8]) -> Result<Object, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut values = MAX_VALUES;
    let value = Seed {
        values: &mut values,
    }
    .deserialize(&mut reader)
    .and_then(|value| reader.end().map(|()| value))
    .map_err(|error| {
        let at = format!("line {} column {}", error.line(), error.column());
        let problem = if body.is_empty() {
            "it is empty".to_owned()
        } else {
            at
        };
        ApiError::new(
            ErrorCode::InvalidJson,
            format!("the body is not valid JSON: {problem}"),
        )
    })?;
    match value {
        Json::Object(object) => Ok(object),
        other => {
            let message = format!("the body must be a JSON object, got {}", other.kind());
            Err(ApiError::new(ErrorCode::InvalidJson, message))
        }
    }
}

/// Reads one value, counting it against what is left of the budget.
struct Seed<'a> {
    values: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Number(value as f64), Json::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut integers = Vec::new();
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Seed {
            values: self.values,
        })? {
            match item {
                Json::Integer(value) if items.is_empty() => integers.push(value),
                item => {
                    take(self.values, 1 + integers.len())?;
                    items.extend(integers.drain(..).map(Json::Integer));
                    items.push(item);
                }
            }
        }
        Ok(if integers.is_empty() {
            Json::List(items)
        } else {
            Json::Integers(integers)
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut object = Object::new();
        while let Some(key) = map.next_key::<String>()? {
            take(self.values, 1)?;
            let value = map.next_value_seed(Seed {
                values: self.values,
            })?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(Json::Object(object))
    }
}

fn take<E: Error>(values: &mut usize, count: usize) -> Result<(), E> {
    *values = values
        .checked_sub(count)
        .ok_or_else(|| E::custom("too many values"))?;
    Ok(())
}
