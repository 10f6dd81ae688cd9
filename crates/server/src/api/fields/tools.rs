//! Tools: the functions that an answer may call, and whether it must.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use engine::did_you_mean;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use text::{Follow, GrammarSpec, Tool, ToolFormat, ToolGrammar, ToolUse};

use super::schema::{named, schema};
use super::types::{List, Object, Required};
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::{Stops, Structured};

/// Most functions of a request.
const MAX_TOOLS: usize = 128;
/// Most characters of a function's name.
const MAX_NAME: usize = 128;
/// Variables of a chat template that the server sets.
const SET: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// The fields of a chat.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ToolFields {
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Whether it calls.
    tool_choice: Option<ToolChoice>,
    /// Whether it may call more than once; true by default.
    parallel_tool_calls: Option<bool>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Object<Map<String, Value>>>,
}

/// A function that the answer may call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatTool")]
struct ToolField {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    function: Required<Object<FunctionField>>,
}

/// Its name and its arguments.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatFunction")]
struct FunctionField {
    name: Required<String>,
    /// What it does, for the model.
    description: Option<String>,
    /// The JSON schema of its arguments; none without it.
    parameters: Option<Object<Map<String, Value>>>,
    /// Refuses a schema that calls cannot follow wholly.
    strict: Option<bool>,
}

/// `type` of a tool or of a call; there is one.
#[derive(Clone, Copy, Debug)]
pub struct FunctionType;

named!(FunctionType { "function" => Self });

/// A function as an endpoint describes it.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name, not checked.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The schema of its arguments; none = no arguments.
    pub parameters: Option<Map<String, Value>>,
    /// A schema that calls cannot follow wholly is refused, whatever the choice.
    pub strict: bool,
    /// The path of the request field that gives the name.
    pub name_field: String,
    /// The path of the request field that gives the schema.
    pub schema_field: String,
}

/// Whether an answer calls.
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

/// The checked tools of a request.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// All functions as the chat template sees them; none if the answer calls nothing.
    pub listed: Vec<Value>,
    /// The functions that the answer may call.
    callable: Vec<Tool>,
    /// The request fields of their schemas.
    fields: Vec<String>,
    mode: Option<ToolUse>,
    parallel: bool,
}

impl ToolFields {
    /// The tools, and the further variables of the chat template.
    ///
    /// # Errors
    /// Faults of the functions or of the choice; a variable that the server sets.
    pub fn tools(self) -> Result<(Tools, Map<String, Value>), ApiError> {
        let variables = self.chat_template_kwargs.map(|Object(given)| given);
        let variables = variables.unwrap_or_default();
        if let Some(name) = SET.iter().find(|name| variables.contains_key(**name)) {
            let param = format!("chat_template_kwargs.{name}");
            return Err(invalid(&param, "is set by the server"));
        }
        let given = self.tools.map(|List(given)| given).unwrap_or_default();
        let function = |(index, Object(tool)): (usize, Object<ToolField>)| {
            let Required(Object(function)) = tool.function;
            Function {
                name: function.name.0,
                description: function.description,
                parameters: function.parameters.map(|Object(schema)| schema),
                strict: function.strict.unwrap_or(false),
                name_field: format!("tools[{index}].function.name"),
                schema_field: format!("tools[{index}].function.parameters"),
            }
        };
        let functions = given.into_iter().enumerate().map(function).collect();
        let named = "tool_choice.function.name";
        let choice = self.tool_choice.unwrap_or_default();
        let tools = Tools::new(functions, choice, named)?;
        Ok((
            tools.parallel(self.parallel_tool_calls.unwrap_or(true)),
            variables,
        ))
    }
}

impl Tools {
    /// The tools `functions` under `choice`; `named` is the request field of a named function.
    ///
    /// # Errors
    /// Too many functions, a name that is malformed or there twice, a choice without its function.
    pub fn new(
        functions: Vec<Function>,
        choice: ToolChoice,
        named: &str,
    ) -> Result<Self, ApiError> {
        if functions.len() > MAX_TOOLS {
            let found = functions.len();
            return Err(invalid(
                "tools",
                format!("must have at most {MAX_TOOLS} members, got {found}"),
            ));
        }
        check_names(&functions)?;
        functions.iter().try_for_each(check_parameters)?;
        let mode = match &choice {
            ToolChoice::None => None,
            ToolChoice::Auto => (!functions.is_empty()).then_some(ToolUse::Auto),
            ToolChoice::Required | ToolChoice::Named(_) if functions.is_empty() => {
                return Err(invalid("tool_choice", "needs tools"));
            }
            ToolChoice::Required | ToolChoice::Named(_) => Some(ToolUse::Required),
        };
        if let ToolChoice::Named(name) = &choice
            && functions.iter().all(|function| function.name != *name)
        {
            let rest = format!("must be a function of tools, got \"{}\"", clip(name));
            return Err(invalid(named, rest));
        }
        let mut tools = Self {
            mode,
            parallel: !matches!(choice, ToolChoice::Named(_)),
            ..Self::default()
        };
        if mode.is_none() {
            return Ok(tools);
        }
        for function in functions {
            tools.listed.push(function.listed());
            if matches!(&choice, ToolChoice::Named(name) if *name != function.name) {
                continue;
            }
            tools.fields.push(function.schema_field);
            tools.callable.push(Tool {
                name: function.name,
                follow: match mode {
                    Some(ToolUse::Auto) if !function.strict => Follow::AsFarAsPossible,
                    _ => Follow::Wholly,
                },
                parameters: function
                    .parameters
                    .map_or_else(|| json!({"properties": {}}), Value::Object),
            });
        }
        Ok(tools)
    }

    /// Allows several calls, or only one.
    #[must_use]
    pub fn parallel(self, parallel: bool) -> Self {
        Self {
            parallel: self.parallel && parallel,
            ..self
        }
    }

    /// Whether an answer may call.
    pub fn is_active(&self) -> bool {
        self.mode.is_some()
    }

    /// The grammar of an answer in the `format` of calls, beside `structured`, the grammar of an
    /// answer without calls.
    ///
    /// # Errors
    /// A grammar that does not go with calls; `ignore_eos` or `min_tokens`.
    pub fn grammar(
        self,
        format: ToolFormat,
        structured: Option<Structured>,
        stops: &Stops,
    ) -> Result<Option<Structured>, ApiError> {
        let Some(mode) = self.mode else {
            return Ok(structured);
        };
        if stops.ignore_eos || stops.min_tokens > 0 {
            let param = if stops.ignore_eos {
                "ignore_eos"
            } else {
                "min_tokens"
            };
            return Err(invalid(
                param,
                "must not be given together with tools, which decide the end",
            ));
        }
        let has_marks = !matches!(format, ToolFormat::Json | ToolFormat::Llama3Json);
        let answer = match (mode, structured) {
            (_, None) | (ToolUse::Required, Some(_)) => None,
            (ToolUse::Auto, Some(Structured { spec, field, .. })) => match spec {
                GrammarSpec::JsonObject if has_marks => Some(json!({"type": "object"})),
                GrammarSpec::JsonSchema(schema) | GrammarSpec::ClosedJsonSchema(schema)
                    if has_marks =>
                {
                    Some(schema)
                }
                _ => {
                    let field = field.split('.').next().unwrap_or(field);
                    let rest = "must not be given together with tools";
                    return Err(invalid(field, rest));
                }
            },
        };
        let grammar = ToolGrammar {
            format,
            tools: self.callable,
            mode,
            parallel: self.parallel,
            answer,
        };
        Ok(Some(Structured {
            field: "tools",
            spec: GrammarSpec::Tools(grammar),
            parts: self.fields,
        }))
    }
}

impl Function {
    /// The function as chat templates of Hugging Face expect it.
    fn listed(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), json!(description));
        }
        let none = json!({"type": "object", "properties": {}});
        let parameters = self.parameters.clone().map_or(none, Value::Object);
        function.insert("parameters".to_owned(), parameters);
        json!({"type": "function", "function": function})
    }
}

/// Checks that the schema of a function's arguments allows objects.
fn check_parameters(function: &Function) -> Result<(), ApiError> {
    let kind = function.parameters.as_ref().and_then(|of| of.get("type"));
    let allows = match kind {
        None | Some(Value::Null) => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if allows {
        return Ok(());
    }
    let param = format!("{}.type", function.schema_field);
    let found = clip(&kind.map(Value::to_string).unwrap_or_default());
    Err(invalid(&param, format!("must be \"object\", got {found}")))
}

fn check_names(functions: &[Function]) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for function in functions {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let chars = function.name.chars().count();
        if !(1..=MAX_NAME).contains(&chars) || !function.name.chars().all(is_part) {
            let rest = format!(
                "must have 1..{MAX_NAME} letters, digits, \"_\", \"-\" or \".\", got \"{}\"",
                clip(&function.name)
            );
            return Err(invalid(&function.name_field, rest));
        }
        if !names.insert(&function.name) {
            let rest = format!("must be there once, got \"{}\" again", clip(&function.name));
            return Err(invalid(&function.name_field, rest));
        }
    }
    Ok(())
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read::<D, NamedChoice>(deserializer)
    }
}

schema!(ToolChoice, generator => ToolChoice::schema::<NamedChoice>(generator));

impl ToolChoice {
    /// The words that choose.
    const WORDS: [&'static str; 3] = ["none", "auto", "required"];

    /// The schema of a name, or of an object of the type `T`.
    pub fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        let named = generator.subschema_for::<T>();
        json_schema!({"anyOf": [{"type": "string", "enum": Self::WORDS}, named]})
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
        deserializer.deserialize_any(ToolChoiceVisitor::<T>(PhantomData))
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

struct ToolChoiceVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<String>> Visitor<'de> for ToolChoiceVisitor<T> {
    type Value = ToolChoice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an object")
    }

    fn visit_str<E: Error>(self, choice: &str) -> Result<ToolChoice, E> {
        match choice {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            other => {
                let hint = did_you_mean(other, ToolChoice::WORDS);
                let found = clip(other);
                Err(E::custom(format_args!(
                    "must be none, auto, required or an object, got \"{found}\"{hint}"
                )))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolChoice, A::Error> {
        let choice = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ToolChoice::Named(choice.into()))
    }
}
