//! `POST /v1/responses`: OpenAI's Responses, translated to a chat. Nothing is stored.

mod events;
mod input;
mod output;

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use text::{Conversation, Message};

use self::events::Writer;
use self::input::Input;
use self::output::{Echo, Facts, Items};
use super::endpoint::Endpoint;
use super::fields::body::{JsonBody, required};
use super::fields::hints::{Switches, Thinking};
use super::fields::schema::schema;
use super::fields::shared::{AnswerOptions, OwnFields, Shared};
use super::fields::structured::{FormatKind, json_schema};
use super::fields::table::Fields;
use super::fields::tools::{Function, FunctionType, ToolChoice, Tools};
use super::fields::types::{Count, Int, List, Object, Required};
use super::route::{EVENTS, JSON};
use super::stream;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::{self, FieldNames, Generation, Structured};

/// The endpoint, with what the answer repeats of its request.
#[derive(Clone, Debug)]
pub struct Responses {
    options: AnswerOptions,
    echo: Echo,
}

/// The fields of this endpoint alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct ResponseFields {
    /// A message of the user, or the history as items.
    input: Required<Input>,
    /// The system text.
    instructions: Option<String>,
    /// The budget in tokens.
    max_output_tokens: Option<Count<1>>,
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Whether it calls.
    tool_choice: Option<Choice>,
    /// Whether it may call more than once; true by default.
    parallel_tool_calls: Option<bool>,
    /// The form of the text.
    text: Option<Object<TextField>>,
    /// `effort` sets the switch of the chat template, where it has one.
    reasoning: Option<Value>,
    /// Only false is supported: nothing is stored.
    store: Option<bool>,
    /// Only false is supported.
    background: Option<bool>,
    /// Not supported: `input` has the whole history.
    previous_response_id: Option<String>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Object<Map<String, Value>>>,
}

/// A function; other tools are refused by their type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesTool")]
struct ToolField {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    name: Required<String>,
    /// What it does, for the model.
    description: Option<String>,
    /// The JSON schema of its arguments; none without it.
    parameters: Option<Object<Map<String, Value>>>,
    /// Refuses a schema that calls cannot follow wholly.
    strict: Option<bool>,
}

/// `text`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesText")]
struct TextField {
    /// Structured output.
    format: Option<Object<FormatField>>,
    /// Without effect.
    verbosity: Option<Value>,
}

/// `text.format`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesTextFormat")]
struct FormatField {
    #[serde(rename = "type")]
    kind: Required<FormatKind>,
    /// Read only with the type `json_schema`.
    schema: Option<Object<Map<String, Value>>>,
    /// Objects are closed, whatever the server's setting.
    strict: Option<bool>,
}

/// `tool_choice`: a name, or an object with the name of a function.
#[derive(Clone, Debug)]
struct Choice(ToolChoice);

/// The object form of `tool_choice`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesNamedChoice")]
struct NamedChoice {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    name: Required<String>,
}

schema!(Choice, generator => ToolChoice::schema::<NamedChoice>(generator));

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ToolChoice::read::<D, NamedChoice>(deserializer).map(Self)
    }
}

impl From<NamedChoice> for String {
    fn from(choice: NamedChoice) -> Self {
        choice.name.0
    }
}

impl Endpoint for Responses {
    const PATH: &'static str = "/v1/responses";
    const ID_PREFIX: &'static str = "resp";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat in OpenAI's Responses.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];

    fn fields() -> Fields {
        Shared::fields::<ResponseFields>().and::<Echo>()
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: ResponseFields = body.read()?;
        fields.support()?;
        let mut shared = Shared::read(body, backend)?;
        shared.one_choice()?;
        if let Some(structured) = fields.structured(backend.model.formats.open_objects)? {
            shared.structure("text.format", structured);
        }
        let tools = fields.tools()?;
        let mut messages = fields.input.0.messages()?;
        if let Some(instructions) = &fields.instructions {
            messages.insert(0, Message::new("system", instructions));
        }
        let variables = fields.chat_template_kwargs.map(|Object(given)| given);
        let mut chat = Conversation {
            messages,
            tools: tools.listed.clone(),
            variables: variables.unwrap_or_default(),
        };
        let mut switches = Switches::new(&mut chat, backend);
        let effort = fields
            .reasoning
            .as_ref()
            .and_then(|given| given.get("effort"));
        switches.follow("reasoning.effort", effort.map(Thinking::effort));
        let mut ignored = switches.ignored;
        let verbosity = fields.text.and_then(|Object(text)| text.verbosity);
        ignored.extend(verbosity.map(|_| "text.verbosity"));
        let own = OwnFields {
            input: generation::Input::Chat(chat),
            names: FieldNames {
                prompt: "input",
                max_tokens: "max_output_tokens",
            },
            max_tokens: fields.max_output_tokens.map(Int::count),
            logprobs: None,
            best_of: None,
            suffix: None,
            add_special_tokens: false,
            echo: false,
            continued: false,
            tools: Some(tools),
            ignored,
        };
        let (options, generation) = shared.generation(own, backend)?;
        let echo = body.read()?;
        Ok((Self { options, echo }, generation))
    }

    async fn respond(self, mut delivery: Delivery) -> Response {
        let facts = Facts::new(self.echo, delivery.answer());
        if self.options.stream.is_some() {
            return stream::respond(Writer::new(facts), delivery);
        }
        match delivery.collect().await {
            Ok((choices, usage)) => {
                let mut items = Items::new(&facts.id);
                let mut events = Vec::new();
                for choice in &choices {
                    items.take(choice.said(), &mut events);
                }
                let reason = choices.iter().find_map(|choice| choice.finish);
                items.end(reason, &mut events);
                Json(facts.response(&items, reason, Some(&usage))).into_response()
            }
            Err(error) => error.into_response(),
        }
    }
}

impl ResponseFields {
    /// Refuses what needs a memory of other answers.
    fn support(&self) -> Result<(), ApiError> {
        let refused = [
            ("store", self.store == Some(true), "true: nothing is stored"),
            ("background", self.background == Some(true), "true"),
            (
                "previous_response_id",
                self.previous_response_id.is_some(),
                "at all: nothing is stored, so input has all items",
            ),
        ];
        match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
            None => Ok(()),
            Some((param, _, what)) => {
                let rest = format!("is not supported {what}");
                Err(ApiError::field(ErrorCode::UnsupportedValue, param, rest))
            }
        }
    }

    /// The functions and the choice.
    fn tools(&self) -> Result<Tools, ApiError> {
        let given = self.tools.iter().flat_map(|List(given)| given);
        let function = |(index, Object(tool)): (usize, &Object<ToolField>)| Function {
            name: tool.name.0.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone().map(|Object(schema)| schema),
            strict: tool.strict.unwrap_or(false),
            name_field: format!("tools[{index}].name"),
            schema_field: format!("tools[{index}].parameters"),
        };
        let functions = given.enumerate().map(function).collect();
        let choice = self.tool_choice.clone().map(|Choice(choice)| choice);
        let tools = Tools::new(functions, choice.unwrap_or_default(), "tool_choice.name")?;
        Ok(tools.parallel(self.parallel_tool_calls.unwrap_or(true)))
    }

    /// The grammar of `text.format`.
    fn structured(&self, open: bool) -> Result<Option<Structured>, ApiError> {
        let format = self
            .text
            .as_ref()
            .and_then(|Object(text)| text.format.as_ref());
        let Some(Object(format)) = format else {
            return Ok(None);
        };
        let field = "text.format.schema";
        let spec = match format.kind.0 {
            FormatKind::Text => return Ok(None),
            FormatKind::Object => text::GrammarSpec::JsonObject,
            FormatKind::Schema => {
                let Object(schema) = format.schema.clone().ok_or_else(|| required(field))?;
                json_schema(schema, open && format.strict != Some(true))
            }
        };
        Ok(Some(Structured::new(field, spec)))
    }
}
