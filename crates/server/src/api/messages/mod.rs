//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages, translated to a chat.

mod blocks;
pub(super) mod envelope;
mod events;
mod output;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use text::Message;

use self::blocks::{MessageFields, messages};
use self::events::Writer;
use self::output::{Blocks, Facts};
use super::endpoint::Endpoint;
use super::fields::body::{JsonBody, required};
use super::fields::conversation::{Chat, Thinking};
use super::fields::messages::{TextType, Texts};
use super::fields::numbers::Count;
use super::fields::schema::named;
use super::fields::shared::{AnswerOptions, Draft, ModelField};
use super::fields::stops;
use super::fields::structured::json_schema;
use super::fields::table::Fields;
use super::fields::tool_choice::ToolChoice;
use super::fields::tools::{Function, ToolPaths, Tools};
use super::fields::types::{List, Object, Required};
use super::items::Items;
use super::route::{About, EVENTS, JSON, Route};
use super::stream;
use super::tokens::counted;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::chat_text::Ending;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::encode::ChatPrompt;
use crate::pipeline::generation::{Generation, Structured};
use crate::state::AppState;

/// The path of counts.
pub const COUNT_PATH: &str = "/v1/messages/count_tokens";

/// The endpoint, with the shape of one answer.
#[derive(Clone, Debug)]
pub struct Messages {
    options: AnswerOptions,
}

/// The fields of both paths.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct PromptFields {
    /// The chat, at least one message.
    messages: Required<List<Object<MessageFields>>>,
    /// The system text; an empty one is none.
    system: Option<Texts<TextType>>,
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Controls which functions the answer calls, if any.
    tool_choice: Option<Object<ChoiceFields>>,
    /// Sets the switch of the chat template, where it has one.
    thinking: Option<Object<ThinkingFields>>,
    /// The form of the text, and how much the model thinks.
    output_config: Option<Object<OutputFields>>,
    /// `output_config.format` under its older name.
    output_format: Option<Object<FormatField>>,
    /// Not supported: `messages` has the whole history.
    thread: Option<Value>,
    /// Further variables of the chat template.
    chat_template_kwargs: Option<Object<Map<String, Value>>>,
}

/// The fields of an answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct AnswerFields {
    /// The budget in tokens.
    max_tokens: Required<Count<1>>,
    /// Strings that end the answer, at most 64.
    stop_sequences: Option<List<String>>,
}

/// A function of the client; the tools of Anthropic's servers are refused by their type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesTool")]
struct ToolField {
    #[serde(rename = "type")]
    _type: Option<CustomType>,
    name: Required<String>,
    /// A description of the function, for the model.
    description: Option<String>,
    /// The JSON schema of its arguments.
    input_schema: Required<Object<Map<String, Value>>>,
    /// Refuses a schema that calls cannot follow wholly.
    strict: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
struct CustomType;

named!(CustomType { "custom" => Self });

/// `tool_choice`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesToolChoice")]
struct ChoiceFields {
    #[serde(rename = "type")]
    kind: Required<ChoiceKind>,
    /// The function, with the type `tool`.
    name: Option<String>,
    /// At most one call.
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
enum ChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

named!(ChoiceKind {
    "auto" => Self::Auto,
    "any" => Self::Any,
    "tool" => Self::Tool,
    "none" => Self::None,
});

/// `thinking`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesThinking")]
struct ThinkingFields {
    #[serde(rename = "type")]
    kind: Required<ThinkingKind>,
    /// Without effect: only `max_tokens` bounds the answer.
    budget_tokens: Option<Value>,
}

/// The switch of the model's thinking.
#[derive(Clone, Copy, Debug)]
struct ThinkingKind(bool);

named!(ThinkingKind {
    "enabled" => Self(true),
    "adaptive" => Self(true),
    "disabled" => Self(false),
});

/// `output_config`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesOutputConfig")]
struct OutputFields {
    /// Structured output.
    format: Option<Object<FormatField>>,
    /// Sets the switch of the chat template, where it has one.
    effort: Option<Value>,
    /// Without effect.
    task_budget: Option<Value>,
}

/// The form of the text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesFormat")]
struct FormatField {
    #[serde(rename = "type")]
    _type: Required<SchemaType>,
    /// The JSON schema; objects that name their members are closed.
    schema: Required<Object<Map<String, Value>>>,
}

#[derive(Clone, Copy, Debug)]
struct SchemaType;

named!(SchemaType { "json_schema" => Self });

/// A grammar, and the field that gives it.
type NamedFormat = (&'static str, Structured);

impl PromptFields {
    const PATHS: ToolPaths = ToolPaths {
        function: "",
        schema: "input_schema",
        choice: "tool_choice.name",
        allowed: "tool_choice",
    };

    /// The chat, and the grammars.
    fn chat(self, backend: &Backend) -> Result<(Chat, Vec<NamedFormat>), ApiError> {
        if self.thread.is_some() {
            let rest = "is not supported: this server stores no messages; send the whole history in messages \
                        (tool runners of the SDKs: thread = false)";
            return Err(ApiError::field(ErrorCode::UnsupportedParameter, envelope::THREAD, rest));
        }
        let tools = tools(self.tools, self.tool_choice)?;
        let mut messages = messages(self.messages.0)?;
        if let Some(system) = self.system.filter(|system| !system.0.is_empty()) {
            messages.insert(0, Message::new("system", &system.0));
        }
        let mut chat = Chat::new(messages, tools, self.chat_template_kwargs);
        if let Some(Object(thinking)) = &self.thinking {
            let ThinkingKind(thinks) = thinking.kind.0;
            chat.follow(backend, "thinking", Some(Thinking::Switch(thinks)));
            if thinking.budget_tokens.is_some() {
                chat.ignored.push("thinking.budget_tokens");
            }
        }
        let mut formats = vec![("output_format", "output_format.schema", self.output_format)];
        if let Some(Object(config)) = self.output_config {
            let effort = config.effort.as_ref().map(Thinking::effort);
            chat.follow(backend, "output_config.effort", effort);
            if config.task_budget.is_some() {
                chat.ignored.push("output_config.task_budget");
            }
            let field = "output_config.format.schema";
            formats.push(("output_config.format", field, config.format));
        }
        let formats = formats.into_iter().filter_map(|(name, field, format)| {
            let Required(Object(schema)) = format?.0.schema;
            Some((name, Structured::new(field, json_schema(schema, false))))
        });
        Ok((chat, formats.collect()))
    }
}

fn tools(
    given: Option<List<Object<ToolField>>>,
    choice: Option<Object<ChoiceFields>>,
) -> Result<Tools, ApiError> {
    let given = given.into_iter().flat_map(|List(given)| given);
    let function = |Object(tool): Object<ToolField>| Function {
        name: tool.name,
        description: tool.description,
        parameters: Some(tool.input_schema.0),
        strict: tool.strict,
    };
    let functions = given.map(function).collect();
    let Some(Object(choice)) = choice else {
        return Tools::new(functions, ToolChoice::Auto, PromptFields::PATHS);
    };
    let named = match (choice.kind.0, choice.name) {
        (ChoiceKind::None, _) => ToolChoice::None,
        (ChoiceKind::Auto, _) => ToolChoice::Auto,
        (ChoiceKind::Any, _) => ToolChoice::Required,
        (ChoiceKind::Tool, Some(name)) => ToolChoice::Named(name),
        (ChoiceKind::Tool, None) => return Err(required("tool_choice.name")),
    };
    let tools = Tools::new(functions, named, PromptFields::PATHS)?;
    Ok(tools.parallel(choice.disable_parallel_tool_use.map(|disable| !disable)))
}

impl Endpoint for Messages {
    const PATH: &'static str = "/v1/messages";
    const ID_PREFIX: &'static str = "msg";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat in Anthropic's Messages.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];

    fn fields() -> Fields {
        Fields::new::<PromptFields>().and_all(&Draft::fields::<AnswerFields>())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let (chat, formats) = body.read::<PromptFields>()?.chat(backend)?;
        let fields: AnswerFields = body.read()?;
        let mut draft = Draft::read(body, backend)?;
        draft.one_choice()?;
        let List(stops) = fields.stop_sequences.unwrap_or(List(Vec::new()));
        stops::add(&mut draft.generation.stops.strings, "stop_sequences", stops)?;
        for (name, format) in formats {
            draft.structure(name, format);
        }
        let is_continued = has_prefill(&chat);
        let tools = draft.chat("messages", chat);
        draft.generation.prompts.is_continued = is_continued;
        draft.generation.stops.max_tokens = Some(fields.max_tokens.0.count());
        let (options, generation) = draft.finish(Some(tools), backend)?;
        Ok((Self { options }, generation))
    }

    async fn respond(self, mut delivery: Delivery) -> Response {
        let facts = Facts::new(delivery.answer());
        if self.options.stream.is_some() {
            return stream::respond(Writer::new(facts), delivery);
        }
        match delivery.collect().await {
            Ok((choices, usage)) => {
                let mut blocks = Items::new(Blocks);
                for choice in &choices {
                    blocks.add(choice.parts());
                }
                blocks.end(false);
                let end = choices.first().and_then(|choice| facts.stop(choice));
                Json(facts.message(blocks.done, end.as_ref(), &usage)).into_response()
            }
            Err(error) => error.into_response(),
        }
    }
}

/// The route of counts. Fields of a generation are accepted there, without effect.
pub fn count_route() -> Route {
    let fields = Fields::new::<PromptFields>().and::<ModelField>();
    let about = About::post("Counts the tokens of a chat.", fields);
    Route::new(COUNT_PATH, post(count_tokens), about)
}

/// The tokens of a chat, the same as in a generation.
///
/// # Errors
/// Faults of the fields; `model_not_found`.
async fn count_tokens(
    State(state): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    counted(&state, COUNT_PATH, request, Messages::fields(), |backend, body| {
        let (chat, _) = body.read::<PromptFields>()?.chat(backend)?;
        body.read::<ModelField>()?.check(backend)?;
        let (tokenizer, limits) = (&backend.tokenizer, backend.engine.limits());
        let ending = match has_prefill(&chat) {
            true => Ending::Continued,
            false => Ending::Answer,
        };
        let prompt = ChatPrompt {
            chat: &chat.conversation,
            calls: backend.tool_format(),
            ending,
            field: "messages",
        };
        let tokens = prompt.ids(tokenizer, limits)?;
        Ok((json!({ "input_tokens": tokens.len() }), chat.ignored))
    })
    .await
}

/// True if the answer continues the last message: a text of the assistant.
fn has_prefill(chat: &Chat) -> bool {
    let last = chat.conversation.messages.last();
    last.is_some_and(|message| message.role == "assistant" && message.calls.is_empty())
}

/// An error of the field `param`.
fn invalid(param: &str, rest: &str) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
