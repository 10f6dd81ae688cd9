//! `POST /v1/chat/completions`.

use axum::response::Response;
use engine::decoding::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use step::Attention;
use text::{Message, Part};

use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::conversation::{Chat, EffortField, Thinking};
use super::fields::logprobs::ListedTokens;
use super::fields::messages::{self, Messages, TextType, Texts};
use super::fields::numbers::{Count, Int};
use super::fields::schema::named;
use super::fields::shared::{AnswerOptions, Draft, Tops};
use super::fields::table::Fields;
use super::fields::tools::ToolFields;
use super::fields::types::{Object, Required};
use super::openai::logprobs::ChatLogprobs;
use super::openai::{self, AnswerChoice, ChunkKind, Shape};
use super::route::{AnswerSchema, EVENTS, JSON};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::Generation;

/// The endpoint, with the shape of one answer.
#[derive(Clone, Copy, Debug)]
pub struct ChatCompletions(AnswerOptions);

/// The fields of this endpoint alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct ChatFields {
    /// The chat, at least one message.
    messages: Required<Messages>,
    /// The budget in tokens; by default the rest of the context, at most 1,024.
    max_tokens: Option<Count<1>>,
    /// Wins over `max_tokens`.
    max_completion_tokens: Option<Count<1>>,
    /// Adds the log-probabilities of the tokens to the answer.
    logprobs: Option<bool>,
    /// The number of most probable tokens that are added at each position; more than 0 need `logprobs`.
    top_logprobs: Option<Tops>,
    /// Continues the last message, which must be the assistant's.
    continue_final_message: Option<bool>,
    /// The answer as far as it is known, such as a text to be rewritten: it is verified, and changes no
    /// token. For causal weights that decode a token at a time.
    prediction: Option<Object<Prediction>>,
}

/// `prediction`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatPrediction")]
struct Prediction {
    #[serde(rename = "type")]
    _type: Required<ContentType>,
    content: Required<Texts<TextType>>,
}

#[derive(Clone, Copy, Debug)]
struct ContentType;

named!(ContentType { "content" => Self });

impl Endpoint for ChatCompletions {
    const PATH: &'static str = "/v1/chat/completions";
    const ID_PREFIX: &'static str = "chatcmpl";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];
    const ANSWER: Option<AnswerSchema> = Some(|schemas| {
        schemas.subschema_for::<openai::Response<'static, AnswerChoice<'static, Self>>>()
    });

    fn fields() -> Fields {
        Fields::new::<ToolFields>()
            .and::<EffortField>()
            .and::<ListedTokens>()
            .and_all(&Draft::fields::<ChatFields>())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: ChatFields = body.read()?;
        let mut draft = Draft::read(body, backend)?;
        let tops = fields.tops()?;
        let chat = conversation(fields.messages.0, body, backend)?;
        let is_continued = fields.continue_final_message.unwrap_or(false);
        check_continuation(is_continued, &chat.conversation.messages)?;
        let tools = draft.chat("messages", chat);
        let generation = &mut draft.generation;
        generation.prompts.is_continued = is_continued;
        if fields.max_completion_tokens.is_some() {
            generation.names.max_tokens = "max_completion_tokens";
        }
        let budget = fields.max_completion_tokens.or(fields.max_tokens);
        generation.stops.max_tokens = budget.map(Int::count);
        body.read::<ListedTokens>()?.list(tops, &mut draft, backend)?;
        let prediction = fields.prediction.map(|Object(prediction)| prediction.content.0.0);
        let (options, mut generation) = draft.finish(Some(tools), backend)?;
        if let Some(prediction) = prediction {
            predict(&mut generation, prediction, backend)?;
        }
        Ok((Self(options), generation))
    }

    async fn respond(self, delivery: Delivery) -> Response {
        openai::respond::<Self>(self.0, delivery).await
    }
}

impl ChatFields {
    fn tops(&self) -> Result<Option<Tops>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (true, tops) => Ok(Some(tops.unwrap_or_default())),
            (false, None) => Ok(None),
            (false, Some(tops)) if tops.get() == 0 => Ok(None),
            (false, Some(_)) => {
                let (code, rest) = (ErrorCode::InvalidValue, "needs logprobs to be true");
                Err(ApiError::field(code, "top_logprobs", rest))
            }
        }
    }
}

/// Lets a generation verify a predicted answer.
///
/// # Errors
/// Weights or a decoder whose text such drafts would change.
fn predict(
    generation: &mut Generation,
    prediction: String,
    backend: &Backend,
) -> Result<(), ApiError> {
    let refuse =
        |rest: &str| Err(ApiError::field(ErrorCode::UnsupportedParameter, "prediction", rest));
    generation.prompts.prediction = Some(prediction);
    if generation.decoding.window() != Some(1) {
        let weights = backend.engine.limits().kind();
        let expecting = match weights.attention {
            Attention::OpenBlock(_) => Err(generation.decoding.decoder.commit.name()),
            _ => generation.decoding.expecting(),
        };
        return match (expecting, weights.expecting_preset()) {
            (Ok(decoding), _) => {
                generation.decoding = decoding;
                Ok(())
            }
            (Err(cause), Some(preset)) => {
                let rest = "would change the text under";
                refuse(&format!("{rest} {cause}: use diffusion.preset {preset}"))
            }
            (Err(_), None) => refuse("would change the text of a canvas of noise"),
        };
    }
    let mut copying = backend.model.decoders.blank();
    let set = copying.set("preset", Value::Name("prompt_lookup"));
    let decoding = set.and_then(|()| backend.model.decoders.resolve(&copying));
    generation.decoding = decoding.map_err(|error| {
        tracing::error!(%error, "the decoder of predictions cannot be used");
        ApiError::internal()
    })?;
    Ok(())
}

/// The chat of `messages` with the fields of `body` that its template sees.
///
/// # Errors
/// Faults of the fields.
pub(super) fn conversation(
    messages: Messages,
    body: &JsonBody<'_>,
    backend: &Backend,
) -> Result<Chat, ApiError> {
    let messages = messages::chat(messages)?;
    let (tools, variables) = body.read::<ToolFields>()?.checked()?;
    let mut chat = Chat::new(messages, tools, variables);
    let EffortField { reasoning_effort } = body.read()?;
    let effort = reasoning_effort.as_ref().map(Thinking::effort);
    chat.follow(backend, "reasoning_effort", effort);
    Ok(chat)
}

/// Only an answer can be continued.
pub(super) fn check_continuation(continued: bool, messages: &[Message]) -> Result<(), ApiError> {
    let last = messages.last();
    if !continued || last.is_some_and(|message| message.role == "assistant") {
        return Ok(());
    }
    let (code, rest) = (ErrorCode::InvalidValue, "needs a final message of the assistant");
    Err(ApiError::field(code, "continue_final_message", rest))
}

/// The content of a choice of an answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Chat")]
pub struct ChatContent {
    message: AssistantMessage,
}

/// The content of a choice of a chunk.
#[derive(Debug, Serialize)]
pub struct ChatChunk<'a> {
    delta: MessageDelta<'a>,
}

/// The message of a choice.
#[derive(Debug, Serialize, JsonSchema)]
struct AssistantMessage {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// A call of an answer.
#[derive(Debug, Serialize, JsonSchema)]
struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

/// The function of a call.
#[derive(Debug, Serialize, JsonSchema)]
struct CalledFunction {
    name: String,
    /// The text of a JSON object.
    arguments: String,
}

impl AssistantMessage {
    fn new(delta: &Delta) -> Self {
        let (mut text, mut reasoning_content) = (String::new(), String::new());
        let mut tool_calls = Vec::new();
        for part in delta.parts() {
            match part {
                Part::Text(more) => text.push_str(&more),
                Part::Reasoning(more) => reasoning_content.push_str(&more),
                Part::Call { id, name, .. } => tool_calls.push(ToolCall {
                    id,
                    kind: "function",
                    function: CalledFunction { name, arguments: String::new() },
                }),
                Part::Arguments { index, text } => {
                    if let Some(call) = tool_calls.get_mut(index) {
                        call.function.arguments.push_str(&text);
                    }
                }
            }
        }
        // A message of calls alone has no content.
        let has_content = tool_calls.is_empty() || !text.trim().is_empty();
        Self {
            role: "assistant",
            content: has_content.then_some(text),
            reasoning_content,
            tool_calls,
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct MessageDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta<'a>; 1]>,
}

/// A piece of a call. Its first piece has id, type and name.
#[derive(Debug, Serialize)]
struct CallDelta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta<'a>,
}

#[derive(Debug, Serialize)]
struct FunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> MessageDelta<'a> {
    fn new(kind: ChunkKind<'a>) -> Self {
        match kind {
            ChunkKind::Role => {
                Self { role: Some("assistant"), content: Some(""), ..Self::default() }
            }
            ChunkKind::Text(text) => Self { content: Some(text), ..Self::default() },
            ChunkKind::Part(Part::Text(text)) => Self::new(ChunkKind::Text(text)),
            ChunkKind::Part(Part::Reasoning(text)) => {
                Self { reasoning_content: Some(text), ..Self::default() }
            }
            ChunkKind::Part(Part::Call { index, id, name }) => Self::call(CallDelta {
                index: *index,
                id: Some(id),
                kind: Some("function"),
                function: FunctionDelta { name: Some(name), arguments: "" },
            }),
            ChunkKind::Part(Part::Arguments { index, text }) => Self::call(CallDelta {
                index: *index,
                id: None,
                kind: None,
                function: FunctionDelta { name: None, arguments: text },
            }),
            ChunkKind::Finish => Self::default(),
        }
    }

    fn call(call: CallDelta<'a>) -> Self {
        Self { tool_calls: Some([call]), ..Self::default() }
    }
}

impl Shape for ChatCompletions {
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";
    const NAMES_ROLE: bool = true;
    type Content<'a> = ChatContent;
    type ChunkContent<'a> = ChatChunk<'a>;
    type Logprobs<'a> = ChatLogprobs<'a>;

    fn content(delta: &Delta) -> ChatContent {
        ChatContent { message: AssistantMessage::new(delta) }
    }

    fn chunk(kind: ChunkKind<'_>) -> ChatChunk<'_> {
        ChatChunk { delta: MessageDelta::new(kind) }
    }
}
