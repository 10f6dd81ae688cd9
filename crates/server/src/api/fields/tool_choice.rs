//! `tool_choice`: a name, or an object that names a function.

use std::marker::PhantomData;

use engine::did_you_mean;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::schema::{named, schema};
use super::types::{Object, Required, text_or_object};
use crate::error::clip;

/// `type` of a tool or of a call; there is one.
#[derive(Clone, Copy, Debug)]
pub struct FunctionType;

named!(FunctionType { "function" => Self });

/// The choice whether an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// It calls nothing.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// It calls at least one function.
    Required,
    /// It calls this function.
    Named(String),
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read::<D, NamedChoice>(deserializer)
    }
}

schema!(ToolChoice, generator => ToolChoice::schema::<NamedChoice>(generator));

impl ToolChoice {
    /// The words that choose.
    const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("auto", Self::Auto), ("required", Self::Required)];

    /// The schema of a name, or of an object of the type `T`.
    pub fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        let named = generator.subschema_for::<T>();
        let words = Self::WORDS.map(|(word, _)| word);
        json_schema!({"anyOf": [{"type": "string", "enum": words}, named]})
    }

    /// A name, or an object of the type `T` that names a function.
    ///
    /// # Errors
    /// Another type, another name, a faulty object.
    pub fn read<'de, D, T>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de> + Into<String>,
    {
        let word = |found: String| {
            let known = Self::WORDS.into_iter().find(|(word, _)| *word == found);
            let choice = known.map(|(_, choice)| ChoiceOf::<T>(choice, PhantomData));
            choice.ok_or_else(|| {
                let hint = did_you_mean(&found, Self::WORDS.map(|(word, _)| word));
                let found = clip(&found);
                format!("must be none, auto, required or an object, got \"{found}\"{hint}")
            })
        };
        text_or_object(deserializer, "a string or an object", word).map(|choice| choice.0)
    }
}

/// A choice that an object of the type `T` names.
struct ChoiceOf<T>(ToolChoice, PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<String>> Deserialize<'de> for ChoiceOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = T::deserialize(deserializer)?.into();
        Ok(Self(ToolChoice::Named(name), PhantomData))
    }
}

impl From<NamedChoice> for String {
    fn from(choice: NamedChoice) -> Self {
        let Required(Object(function)) = choice.function;
        function.name.0
    }
}

/// The object form of `tool_choice`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ChatNamedChoice")]
struct NamedChoice {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    function: Required<Object<NamedFunction>>,
}

/// The function to call.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ChatNamedFunction")]
struct NamedFunction {
    name: Required<String>,
}
