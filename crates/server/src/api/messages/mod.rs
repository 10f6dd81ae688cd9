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
use super::fields::hints::{Switches, Thinking};
use super::fields::messages::Parts;
use super::fields::schema::named;
use super::fields::shared::{AnswerOptions, OwnFields, Shared, check_model};
use super::fields::structured::json_schema;
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
use crate::pipeline::encode::{self, Ending};
use crate::pipeline::generation::{FieldNames, Generation, Input, Structured};
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
    /// Sets the switch of the chat template, where it has one.
    thinking: Option<Object<ThinkingFields>>,
    /// The form of the text, and how much the model thinks.
    output_config: Option<Object<OutputFields>>,
    /// `output_config.format` under its older name.
    output_format: Option<Object<FormatField>>,
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

/// `thinking`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesThinking")]
struct ThinkingFields {
    #[serde(rename = "type")]
    kind: Required<ThinkingKind>,
    /// Without effect: only `max_tokens` bounds the answer.
    budget_tokens: Option<Value>,
}

/// Whether the model thinks.
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

/// The fields of a body that do not concern sampling.
struct Asked {
    chat: Conversation,
    tools: Tools,
    /// The grammars by their fields.
    formats: Vec<(&'static str, Structured)>,
    /// Hints without effect.
    ignored: Vec<&'static str>,
}

impl PromptFields {
    /// The chat and its tools.
    fn asked(self, backend: &Backend) -> Result<Asked, ApiError> {
        let tools = self.tools()?;
        let mut messages = messages(self.messages.0)?;
        if let Some(Parts(system)) = &self.system {
            messages.insert(0, Message::new("system", system));
        }
        let variables = self.chat_template_kwargs.map(|Object(given)| given);
        let mut chat = Conversation {
            messages,
            tools: tools.listed.clone(),
            variables: variables.unwrap_or_default(),
        };
        let mut switches = Switches::new(&mut chat, backend);
        if let Some(Object(thinking)) = &self.thinking {
            let ThinkingKind(thinks) = thinking.kind.0;
            switches.follow("thinking", Some(Thinking::Switch(thinks)));
            if thinking.budget_tokens.is_some() {
                switches.ignored.push("thinking.budget_tokens");
            }
        }
        let mut formats = vec![("output_format", "output_format.schema", self.output_format)];
        if let Some(Object(config)) = self.output_config {
            switches.follow(
                "output_config.effort",
                config.effort.as_ref().map(Thinking::effort),
            );
            if config.task_budget.is_some() {
                switches.ignored.push("output_config.task_budget");
            }
            let field = "output_config.format.schema";
            formats.push(("output_config.format", field, config.format));
        }
        let ignored = switches.ignored;
        let formats = formats.into_iter().filter_map(|(name, field, format)| {
            let Required(Object(schema)) = format?.0.schema;
            Some((name, Structured::new(field, json_schema(schema, false))))
        });
        Ok(Asked {
            chat,
            tools,
            formats: formats.collect(),
            ignored,
        })
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
        let asked = body.read::<PromptFields>()?.asked(backend)?;
        let fields: AnswerFields = body.read()?;
        let mut shared = Shared::read(body, backend)?;
        shared.one_choice()?;
        let stops = fields
            .stop_sequences
            .map(|List(stops)| stops)
            .unwrap_or_default();
        shared.stop_at("stop_sequences", &stops)?;
        for (name, format) in asked.formats {
            shared.structure(name, format);
        }
        let own = OwnFields {
            input: Input::Chat(asked.chat),
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
            tools: Some(asked.tools),
            ignored: asked.ignored,
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
        let Asked { chat, .. } = body.read::<PromptFields>()?.asked(backend)?;
        let ModelField { model } = body.read()?;
        check_model(Some(&model.0), backend)?;
        let (tokenizer, limits) = (&backend.tokenizer, backend.engine.limits());
        let tokens = encode::chat(
            tokenizer,
            limits,
            (&chat, backend.tool_format()),
            Ending::Answer,
        )?;
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
