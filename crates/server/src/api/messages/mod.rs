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
use text::{Conversation, Message};

use self::blocks::{MessageFields, messages};
use self::events::Writer;
use self::output::{Blocks, Facts};
use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::messages::Parts;
use super::fields::schema::named;
use super::fields::shared::{AnswerOptions, OwnFields, Shared, check_model};
use super::fields::table::Fields;
use super::fields::tools::{Function, ToolChoice, Tools};
use super::fields::types::{Count, List, Object, Required};
use super::route::{About, EVENTS, JSON, Route};
use super::stream;
use super::tokens::with_body;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::metrics::Followed;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::encode;
use crate::pipeline::generation::{FieldNames, Generation, Input};
use crate::state::AppState;

/// The path of counts.
pub const COUNT_PATH: &str = "/v1/messages/count_tokens";

/// The endpoint, with the shape of one answer.
#[derive(Clone, Debug)]
pub struct Messages {
    options: AnswerOptions,
    /// Stop strings, to tell which one ended the answer.
    stops: Vec<String>,
}

/// The fields of both paths.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct PromptFields {
    /// The chat, at least one message.
    messages: Required<List<Object<MessageFields>>>,
    /// The system text.
    system: Option<Parts>,
    /// The functions that the answer may call, at most 128.
    tools: Option<List<Object<ToolField>>>,
    /// Whether it calls.
    tool_choice: Option<Object<ChoiceFields>>,
    /// Only `disabled` is supported.
    #[serde(rename = "thinking")]
    _thinking: Option<Object<ThinkingFields>>,
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
    /// What it does, for the model.
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

/// `thinking`: a budget of its own is not supported.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesThinking")]
struct ThinkingFields {
    #[serde(rename = "type")]
    _type: Required<DisabledType>,
}

#[derive(Clone, Copy, Debug)]
struct DisabledType;

named!(DisabledType { "disabled" => Self });

impl PromptFields {
    /// The chat and its tools.
    fn chat(self) -> Result<(Conversation, Tools), ApiError> {
        let tools = self.tools()?;
        let mut messages = messages(self.messages.0)?;
        if let Some(Parts(system)) = &self.system {
            messages.insert(0, Message::new("system", system));
        }
        let variables = self.chat_template_kwargs.map(|Object(given)| given);
        let chat = Conversation {
            messages,
            tools: tools.listed.clone(),
            variables: variables.unwrap_or_default(),
        };
        Ok((chat, tools))
    }

    fn tools(&self) -> Result<Tools, ApiError> {
        let given = self.tools.iter().flat_map(|List(given)| given);
        let function = |(index, Object(tool)): (usize, &Object<ToolField>)| Function {
            name: tool.name.0.clone(),
            description: tool.description.clone(),
            parameters: Some(tool.input_schema.0.0.clone()),
            strict: tool.strict.unwrap_or(false),
            name_field: format!("tools[{index}].name"),
            schema_field: format!("tools[{index}].input_schema"),
        };
        let functions = given.enumerate().map(function).collect();
        let Some(Object(choice)) = &self.tool_choice else {
            return Tools::new(functions, ToolChoice::Auto, "tool_choice");
        };
        let named = match (choice.kind.0, &choice.name) {
            (ChoiceKind::None, _) => ToolChoice::None,
            (ChoiceKind::Auto, _) => ToolChoice::Auto,
            (ChoiceKind::Any, _) => ToolChoice::Required,
            (ChoiceKind::Tool, Some(name)) => ToolChoice::Named(name.clone()),
            (ChoiceKind::Tool, None) => {
                return Err(super::fields::body::required("tool_choice.name"));
            }
        };
        let tools = Tools::new(functions, named, "tool_choice.name")?;
        Ok(tools.parallel(choice.disable_parallel_tool_use != Some(true)))
    }
}

impl Endpoint for Messages {
    const PATH: &'static str = "/v1/messages";
    const ID_PREFIX: &'static str = "msg";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat in Anthropic's Messages.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];

    fn fields() -> Fields {
        Fields::of::<PromptFields>().and_all(&Shared::fields::<AnswerFields>())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let (chat, tools) = body.read::<PromptFields>()?.chat()?;
        let fields: AnswerFields = body.read()?;
        let mut shared = Shared::read(body, backend)?;
        shared.one_choice()?;
        let stops = fields
            .stop_sequences
            .map(|List(stops)| stops)
            .unwrap_or_default();
        shared.stop_at("stop_sequences", &stops)?;
        let own = OwnFields {
            input: Input::Chat(chat),
            names: FieldNames {
                prompt: "messages",
                max_tokens: "max_tokens",
            },
            max_tokens: Some(fields.max_tokens.0.count()),
            logprobs: None,
            best_of: None,
            suffix: None,
            add_special_tokens: false,
            echo: false,
            continued: false,
            tools: Some(tools),
        };
        let (options, generation) = shared.generation(own, backend)?;
        let stops = generation.stops.strings.clone();
        Ok((Self { options, stops }, generation))
    }

    async fn respond(self, mut delivery: Delivery) -> Response {
        let facts = Facts::new(delivery.answer(), self.stops);
        if self.options.stream.is_some() {
            return stream::respond(Writer::new(facts), delivery);
        }
        match delivery.collect().await {
            Ok((choices, usage)) => {
                let (mut blocks, mut events) = (Blocks::default(), Vec::new());
                for choice in &choices {
                    blocks.take(choice.said(), &mut events);
                }
                blocks.end(&mut events);
                let end = choices.first().and_then(|choice| facts.stop(choice));
                Json(facts.message(blocks.done, end.as_ref(), &usage)).into_response()
            }
            Err(error) => error.into_response(),
        }
    }
}

/// `model` of a count.
#[derive(Debug, Deserialize, JsonSchema)]
struct ModelField {
    /// The served model's name.
    model: Required<String>,
}

/// The route of counts. Fields of a generation are ignored there.
pub fn count_route() -> Route {
    let fields = Fields::of::<PromptFields>().and::<ModelField>();
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
) -> Result<Json<Value>, ApiError> {
    let followed = Followed::new(state.backend()?.metrics.clone(), COUNT_PATH);
    let answer = with_body(&state, request, |backend, body| {
        let (chat, _) = body.read::<PromptFields>()?.chat()?;
        let ModelField { model } = body.read()?;
        check_model(Some(&model.0), backend)?;
        let (tokenizer, limits) = (&backend.tokenizer, backend.engine.limits());
        let tokens = encode::chat(tokenizer, limits, (&chat, backend.tool_format()))?;
        Ok(Json(json!({ "input_tokens": tokens.len() })))
    })
    .await;
    followed.end(&answer);
    answer
}

/// An error of the field `param`.
fn invalid(param: &str, rest: &str) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
