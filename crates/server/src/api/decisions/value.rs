//! The value of an option of `/v1/decisions`: a text or a boolean.

use std::fmt;

use schemars::json_schema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::fields::schema::schema;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// A boolean.
    Flag(bool),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Flag(flag) => flag.fmt(formatter),
        }
    }
}

schema!(OptionValue, _ => json_schema!({"type": ["string", "boolean"]}));

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a boolean")
    }

    fn visit_bool<E>(self, value: bool) -> Result<OptionValue, E> {
        Ok(OptionValue::Flag(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<OptionValue, E> {
        Ok(OptionValue::Text(value.to_owned()))
    }
}
