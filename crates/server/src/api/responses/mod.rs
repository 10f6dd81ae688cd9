//! `POST /v1/responses`: OpenAI's Responses, translated to a chat. Nothing is stored.

mod count;
mod events;
pub(super) mod input;
mod output;

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use text::Message;

pub use self::count::{COUNT_PATH, count_route};
use self::events::Writer;
use self::input::Input;
use self::output::{Cut, Echo, Facts, OutputItems};
use super::endpoint::Endpoint;
use super::fields::body::{JsonBody, required};
use super::fields::conversation::{Chat, Thinking};
use super::fields::numbers::{Count, Int};
use super::fields::shared::{AnswerOptions, Draft};
use super::fields::structured::{FormatKind, json_schema};
use super::fields::table::Fields;
use super::fields::tool_choice::{Choice, ChoiceKind, FunctionType, Mode, ToolChoice};
use super::fields::tools::{Function, ToolPaths, Tools};
use super::fields::types::{List, Object, Required};
use super::items::Items;
use super::route::{EVENTS, JSON};
use super::stream;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::{Generation, Structured};

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
    /// The system text; an empty one is none.
    instructions: Option<String>,
    /// The budget in tokens.
    max_output_tokens: Option<Count<1>>,
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Controls which functions the answer calls, if any.
    tool_choice: Option<Choice<NamedChoice>>,
    /// Permits several calls in one answer; true by default.
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
    /// Not supported: instructions that OpenAI stores.
    prompt: Option<Value>,
    /// Nothing more is included; log-probabilities that are asked for are named as ignored.
    include: Option<List<String>>,
    /// Nothing is cut; `auto` is named as ignored.
    truncation: Option<String>,
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
    /// A description of the function, for the model.
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

/// The object form of `tool_choice`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesNamedChoice")]
struct NamedChoice {
    #[serde(rename = "type")]
    kind: Required<ChoiceKind>,
    /// The function to call, with the type `function`.
    name: Option<String>,
    /// `auto` or `required`, with the type `allowed_tools`.
    mode: Option<Mode>,
    /// The functions that may be called, with the type `allowed_tools`.
    tools: Option<List<Object<NamedTool>>>,
}

/// A function that may be called.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ResponsesNamedTool")]
struct NamedTool {
    #[serde(rename = "type")]
    _type: Required<FunctionType>,
    name: Required<String>,
}

impl NamedChoice {
    /// The choice.
    ///
    /// # Errors
    /// A member of its type is missing.
    fn choice(self) -> Result<ToolChoice, ApiError> {
        if self.kind.0 == ChoiceKind::Function {
            let name = self.name.ok_or_else(|| required("tool_choice.name"))?;
            return Ok(ToolChoice::Named(name));
        }
        let Mode(mode) = self.mode.ok_or_else(|| required("tool_choice.mode"))?;
        let List(tools) = self.tools.ok_or_else(|| required("tool_choice.tools"))?;
        let names = tools.into_iter().map(|Object(tool)| tool.name.0);
        Ok(ToolChoice::Allowed(mode, names.collect()))
    }
}

impl Endpoint for Responses {
    const PATH: &'static str = "/v1/responses";
    const ID_PREFIX: &'static str = "resp";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat in OpenAI's Responses.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];

    fn fields() -> Fields {
        Draft::fields::<ResponseFields>().and::<Echo>()
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: ResponseFields = body.read()?;
        fields.support()?;
        let mut draft = Draft::read(body, backend)?;
        draft.one_choice()?;
        if let Some(structured) = fields.structured(backend.model.formats.open_objects)? {
            draft.structure("text.format", structured);
        }
        let budget = fields.max_output_tokens.map(Int::count);
        let tools = draft.chat("input", fields.chat(backend)?);
        draft.generation.names.max_tokens = "max_output_tokens";
        draft.generation.stops.max_tokens = budget;
        let (options, generation) = draft.finish(Some(tools), backend)?;
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
                let mut items = Items::new(OutputItems::new(&facts.id));
                for choice in &choices {
                    items.add(choice.parts());
                }
                let cut = choices.iter().find_map(Cut::of);
                items.end(cut.is_some());
                Json(facts.response(&items.done, cut, Some(&usage))).into_response()
            }
            Err(error) => error.into_response(),
        }
    }
}

impl ResponseFields {
    /// Refuses what needs a memory of other answers.
    fn support(&self) -> Result<(), ApiError> {
        let refused = [
            ("store", self.store == Some(true), "must be false: this server stores no answers"),
            (
                "background",
                self.background == Some(true),
                "must be false: this server answers while the client waits",
            ),
            (
                "previous_response_id",
                self.previous_response_id.is_some(),
                "is not supported: this server stores no answers; send the whole history in input",
            ),
            (
                "prompt",
                self.prompt.is_some(),
                "is not supported: this server stores no prompts; send the text in instructions and input",
            ),
        ];
        match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
            None => Ok(()),
            Some((param, _, rest)) => {
                Err(ApiError::field(ErrorCode::UnsupportedValue, param, rest))
            }
        }
    }

    fn chat(self, backend: &Backend) -> Result<Chat, ApiError> {
        let tools = tools(self.tools, self.tool_choice)?;
        let tools = tools.parallel(self.parallel_tool_calls);
        let mut messages = self.input.0.messages()?;
        if let Some(instructions) = self.instructions.filter(|text| !text.is_empty()) {
            messages.insert(0, Message::new("system", &instructions));
        }
        let mut chat = Chat::new(messages, tools, self.chat_template_kwargs);
        let reasoning = self.reasoning.as_ref();
        let effort = reasoning.and_then(|given| given.get("effort"));
        chat.follow(backend, "reasoning.effort", effort.map(Thinking::effort));
        let verbosity = self.text.and_then(|Object(text)| text.verbosity);
        chat.ignored.extend(verbosity.map(|_| "text.verbosity"));
        let included = self.include.into_iter().flat_map(|List(included)| included);
        let mut logprobs = included.filter(|part| part == "message.output_text.logprobs");
        chat.ignored.extend(logprobs.next().map(|_| "include"));
        let cut = self.truncation.filter(|mode| mode != "disabled");
        chat.ignored.extend(cut.map(|_| "truncation"));
        Ok(chat)
    }

    /// The grammar of `text.format`.
    fn structured(&self, open: bool) -> Result<Option<Structured>, ApiError> {
        let format = self.text.as_ref().and_then(|Object(text)| text.format.as_ref());
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

fn tools(
    given: Option<List<Object<ToolField>>>,
    choice: Option<Choice<NamedChoice>>,
) -> Result<Tools, ApiError> {
    const PATHS: ToolPaths = ToolPaths {
        function: "",
        schema: "parameters",
        choice: "tool_choice.name",
        allowed: "tool_choice.tools",
    };
    let given = given.into_iter().flat_map(|List(given)| given);
    let function = |Object(tool): Object<ToolField>| Function {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        strict: tool.strict,
    };
    let choice = match choice {
        None => ToolChoice::default(),
        Some(Choice::Word(choice)) => choice,
        Some(Choice::Object(object)) => object.choice()?,
    };
    Tools::new(given.map(function).collect(), choice, PATHS)
}
