//! Tools: the functions that an answer may call, and whether it must.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use text::{Follow, GrammarSpec, Tool, ToolFormat, ToolGrammar, ToolUse};

use super::tool_choice::{Choice, FunctionType, NamedChoice, ToolChoice};
use super::types::{List, Object, Required};
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::{Stops, Structured};

/// Maximum number of functions of a request.
const MAX_TOOLS: usize = 128;
/// Maximum length of a function's name.
const MAX_NAME_CHARS: usize = 128;
/// Variables of a chat template that the server sets.
const SERVER_VARIABLES: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// Further variables of a chat template.
pub type Variables = Option<Object<Map<String, Value>>>;

/// The fields of a chat.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ToolFields {
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Controls which functions the answer calls, if any.
    tool_choice: Option<Choice<NamedChoice>>,
    /// Permits several calls in one answer; true by default.
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
    function: Required<Object<Function>>,
}

/// A function as an endpoint describes it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatFunction")]
pub struct Function {
    /// The name.
    pub name: Required<String>,
    /// A description of its purpose, for the model.
    pub description: Option<String>,
    /// The JSON schema of its arguments; without it there are none.
    pub parameters: Option<Object<Map<String, Value>>>,
    /// Refuses a schema that calls cannot follow wholly.
    pub strict: Option<bool>,
}

/// Paths of the request fields that describe functions, for errors.
#[derive(Clone, Copy, Debug)]
pub struct ToolPaths {
    /// The field below a member of `tools` that has the function, with its dot.
    pub function: &'static str,
    /// The field of the schema of the arguments.
    pub schema: &'static str,
    /// The field that names a function to call.
    pub choice: &'static str,
    /// The field that lists the functions that may be called.
    pub allowed: &'static str,
}

impl ToolPaths {
    fn name(&self, index: usize) -> String {
        format!("tools[{index}]{}.name", self.function)
    }

    fn schema(&self, index: usize) -> String {
        format!("tools[{index}]{}.{}", self.function, self.schema)
    }
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
    const PATHS: ToolPaths = ToolPaths {
        function: ".function",
        schema: "parameters",
        choice: "tool_choice.function.name",
        allowed: "tool_choice.allowed_tools.tools",
    };

    /// The tools, and the further variables of the template.
    ///
    /// # Errors
    /// Faults of the functions or of the choice; a variable that the server sets.
    pub fn checked(self) -> Result<(Tools, Variables), ApiError> {
        if let Some(Object(variables)) = &self.chat_template_kwargs
            && let Some(name) = SERVER_VARIABLES.iter().find(|name| variables.contains_key(**name))
        {
            let param = format!("chat_template_kwargs.{name}");
            return Err(invalid(&param, "is set by the server"));
        }
        let functions = self.tools.into_iter().flat_map(|List(given)| given);
        let functions = functions.map(|Object(tool)| tool.function.0.0).collect();
        let choice = match self.tool_choice {
            None => ToolChoice::default(),
            Some(Choice::Word(choice)) => choice,
            Some(Choice::Object(object)) => object.choice()?,
        };
        let tools = Tools::new(functions, choice, Self::PATHS)?;
        let tools = tools.parallel(self.parallel_tool_calls);
        Ok((tools, self.chat_template_kwargs))
    }
}

impl Tools {
    /// The tools `functions` under `choice`.
    ///
    /// # Errors
    /// Too many functions, a name that is malformed or there twice, a choice without its function.
    pub fn new(
        functions: Vec<Function>,
        choice: ToolChoice,
        paths: ToolPaths,
    ) -> Result<Self, ApiError> {
        if functions.len() > MAX_TOOLS {
            let found = functions.len();
            let rest = format!("must have at most {MAX_TOOLS} members, got {found}");
            return Err(invalid("tools", rest));
        }
        check_names(&functions, paths)?;
        for (index, function) in functions.iter().enumerate() {
            check_parameters(function, &paths.schema(index))?;
        }
        let mode = match &choice {
            ToolChoice::None => None,
            ToolChoice::Auto => (!functions.is_empty()).then_some(ToolUse::Auto),
            _ if functions.is_empty() => return Err(invalid("tool_choice", "needs tools")),
            ToolChoice::Required | ToolChoice::Named(_) => Some(ToolUse::Required),
            ToolChoice::Allowed(mode, _) => Some(*mode),
        };
        let parallel = !matches!(choice, ToolChoice::Named(_));
        let mut tools = Self { mode, parallel, ..Self::default() };
        if mode.is_none() {
            return Ok(tools);
        }
        let allowed = allowed(choice, &functions, paths)?;
        for (index, function) in functions.into_iter().enumerate() {
            tools.listed.push(function.listed());
            if allowed.as_ref().is_some_and(|names| !names.contains(&function.name.0)) {
                continue;
            }
            tools.fields.push(paths.schema(index));
            tools.callable.push(Tool {
                name: function.name.0,
                follow: match mode {
                    Some(ToolUse::Auto) if function.strict != Some(true) => Follow::AsFarAsPossible,
                    _ => Follow::Wholly,
                },
                parameters: match function.parameters {
                    Some(Object(schema)) => Value::Object(schema),
                    None => json!({"properties": {}}),
                },
            });
        }
        Ok(tools)
    }

    /// Allows several calls, by default, or only one.
    #[must_use]
    pub fn parallel(self, parallel: Option<bool>) -> Self {
        Self { parallel: self.parallel && parallel.unwrap_or(true), ..self }
    }

    /// True if an answer may call.
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
            let param = if stops.ignore_eos { "ignore_eos" } else { "min_tokens" };
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
        let grammar =
            ToolGrammar { format, tools: self.callable, mode, parallel: self.parallel, answer };
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
        function.insert("name".to_owned(), json!(self.name.0));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), json!(description));
        }
        let none = json!({"type": "object", "properties": {}});
        let parameters = self.parameters.clone();
        let parameters = parameters.map_or(none, |Object(schema)| Value::Object(schema));
        function.insert("parameters".to_owned(), parameters);
        json!({"type": "function", "function": function})
    }
}

/// Checks that the schema of a function's arguments, the request field `field`, allows objects.
fn check_parameters(function: &Function, field: &str) -> Result<(), ApiError> {
    let kind = function.parameters.as_ref();
    let kind = kind.and_then(|Object(schema)| schema.get("type"));
    let allows = match kind {
        None | Some(Value::Null) => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if allows {
        return Ok(());
    }
    let found = clip(&kind.map(Value::to_string).unwrap_or_default());
    let rest = format!("must be \"object\", got {found}");
    Err(invalid(&format!("{field}.type"), rest))
}

/// The names of the functions that may be called; `None` = all.
fn allowed(
    choice: ToolChoice,
    functions: &[Function],
    paths: ToolPaths,
) -> Result<Option<Vec<String>>, ApiError> {
    let (names, field) = match choice {
        ToolChoice::Named(name) => (vec![name], paths.choice),
        ToolChoice::Allowed(_, names) => (names, paths.allowed),
        ToolChoice::None | ToolChoice::Auto | ToolChoice::Required => return Ok(None),
    };
    if names.is_empty() {
        return Err(invalid(field, "must not be empty"));
    }
    let known = |name: &String| functions.iter().any(|function| function.name.0 == *name);
    match names.iter().find(|name| !known(name)) {
        None => Ok(Some(names)),
        Some(name) => {
            let rest = format!("must name a function of tools, got \"{}\"", clip(name));
            Err(invalid(field, rest))
        }
    }
}

fn check_names(functions: &[Function], paths: ToolPaths) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for (index, function) in functions.iter().enumerate() {
        let name = &function.name.0;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) || !name.chars().all(is_part) {
            let rest = format!(
                "must have 1..{MAX_NAME_CHARS} letters, digits, \"_\", \"-\" or \".\", got \"{}\"",
                clip(name)
            );
            return Err(invalid(&paths.name(index), rest));
        }
        if !names.insert(name) {
            let rest = format!("must occur once, got \"{}\" again", clip(name));
            return Err(invalid(&paths.name(index), rest));
        }
    }
    Ok(())
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
