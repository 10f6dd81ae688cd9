//! `tool_choice`: a word, or an object that names functions.

use std::borrow::Cow;

use engine::did_you_mean;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use text::ToolUse;

use super::body::required;
use super::schema::named;
use super::types::{List, Object, Required, text_or_object};
use crate::error::{ApiError, clip};

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
    /// It calls none but these functions; at least one of them under [`ToolUse::Required`].
    Allowed(ToolUse, Vec<String>),
}

/// `tool_choice`: a word, or an object of the type `T`.
#[derive(Clone, Debug)]
pub enum Choice<T> {
    /// A word.
    Word(ToolChoice),
    /// An object.
    Object(T),
}

/// The words that choose.
const WORDS: [(&str, ToolChoice); 3] =
    [("none", ToolChoice::None), ("auto", ToolChoice::Auto), ("required", ToolChoice::Required)];

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = |found: String| {
            let known = WORDS.into_iter().find(|(word, _)| *word == found);
            known.map(|(_, choice)| Form(Self::Word(choice))).ok_or_else(|| {
                let hint = did_you_mean(&found, WORDS.map(|(word, _)| word));
                let found = clip(&found);
                format!("must be none, auto, required or an object, got \"{found}\"{hint}")
            })
        };
        text_or_object(deserializer, "a string or an object", word).map(|Form(choice)| choice)
    }
}

/// A choice that is read from an object.
struct Form<T>(Choice<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Form<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|object| Self(Choice::Object(object)))
    }
}

impl<T: JsonSchema> JsonSchema for Choice<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ToolChoice_or_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<T>();
        json_schema!({"anyOf": [{"type": "string", "enum": WORDS.map(|(word, _)| word)}, object]})
    }
}

/// `type` of the object form of `tool_choice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceKind {
    /// It names a function to call.
    Function,
    /// It lists the functions that may be called.
    Allowed,
}

named!(ChoiceKind {
    "function" => Self::Function,
    "allowed_tools" => Self::Allowed,
});

/// `mode` of the object form `allowed_tools`.
#[derive(Clone, Copy, Debug)]
pub struct Mode(pub ToolUse);

named!(Mode {
    "auto" => Self(ToolUse::Auto),
    "required" => Self(ToolUse::Required),
});

/// The object form of `tool_choice` in chats.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatNamedChoice")]
pub struct NamedChoice {
    #[serde(rename = "type")]
    kind: Required<ChoiceKind>,
    /// The function to call, with the type `function`.
    function: Option<Object<NamedFunction>>,
    /// The functions that may be called, with the type `allowed_tools`.
    allowed_tools: Option<Object<AllowedTools>>,
}

/// The functions that may be called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatAllowedTools")]
struct AllowedTools {
    mode: Required<Mode>,
    tools: Required<List<Object<NamedTool>>>,
}

/// A function that may be called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatNamedTool")]
struct NamedTool {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    function: Required<Object<NamedFunction>>,
}

/// The function to call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatNamedFunction")]
struct NamedFunction {
    name: Required<String>,
}

impl NamedChoice {
    /// The choice.
    ///
    /// # Errors
    /// The member of its type is missing.
    pub fn choice(self) -> Result<ToolChoice, ApiError> {
        match (self.kind.0, self.function, self.allowed_tools) {
            (ChoiceKind::Function, Some(Object(function)), _) => {
                Ok(ToolChoice::Named(function.name.0))
            }
            (ChoiceKind::Function, None, _) => Err(required("tool_choice.function")),
            (ChoiceKind::Allowed, _, Some(Object(allowed))) => {
                let (Required(Mode(mode)), Required(List(tools))) = (allowed.mode, allowed.tools);
                let names = tools.into_iter().map(|Object(tool)| tool.function.0.0.name.0);
                Ok(ToolChoice::Allowed(mode, names.collect()))
            }
            (ChoiceKind::Allowed, _, None) => Err(required("tool_choice.allowed_tools")),
        }
    }
}
