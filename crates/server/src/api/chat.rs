//! `POST /v1/chat/completions`.

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use step::TokenId;
use text::{Conversation, Message};

use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::hints::{EffortField, Switches, Thinking};
use super::fields::messages::{self, Messages};
use super::fields::shared::{AnswerOptions, OwnFields, Shared, Tops};
use super::fields::table::Fields;
use super::fields::tools::{ToolFields, Tools};
use super::fields::types::{Count, Int, Required};
use super::openai::logprobs::ChatLogprobs;
use super::openai::{self, ChunkExtras, ChunkKind, Shape};
use super::route::{AnswerSchema, EVENTS, JSON};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::{FieldNames, Generation, Input};
use crate::pipeline::parts::{Call, Part, Said};

/// The endpoint, with the shape of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Chat(AnswerOptions);

/// The fields of this endpoint alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct ChatFields {
    /// The chat, at least one message.
    messages: Required<Messages>,
    /// The budget in tokens; by default the rest of the context, at most 1,024.
    max_tokens: Option<Count<1>>,
    /// Wins over `max_tokens`.
    max_completion_tokens: Option<Count<1>>,
    /// The answer has the log-probabilities of its tokens.
    logprobs: Option<bool>,
    /// With so many alternatives to each token; more than 0 need `logprobs`.
    top_logprobs: Option<Tops>,
    /// Continues the last message, which must be the assistant's.
    continue_final_message: Option<bool>,
}

impl Endpoint for Chat {
    const PATH: &'static str = "/v1/chat/completions";
    const ID_PREFIX: &'static str = "chatcmpl";
    const OPERATION: &'static str = "chat";
    const SUMMARY: &'static str = "Answers a chat.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];
    const ANSWER: Option<AnswerSchema> =
        Some(|schemas| schemas.subschema_for::<openai::Response<'static, Choice<'static>>>());

    fn fields() -> Fields {
        Fields::of::<ToolFields>()
            .and::<EffortField>()
            .and_all(&Shared::fields::<ChatFields>())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: ChatFields = body.read()?;
        let shared = Shared::read(body, backend)?;
        let (logprobs, max_tokens) = (fields.logprobs()?, fields.max_tokens);
        let continued = fields.continue_final_message.unwrap_or(false);
        let (chat, tools, ignored) = conversation(fields.messages.0, body, backend)?;
        check_continuation(continued, &chat.messages)?;
        let own = OwnFields {
            input: Input::Chat(chat),
            names: FieldNames {
                prompt: "messages",
                max_tokens: match fields.max_completion_tokens {
                    Some(_) => "max_completion_tokens",
                    None => "max_tokens",
                },
            },
            max_tokens: fields.max_completion_tokens.or(max_tokens).map(Int::count),
            logprobs,
            best_of: None,
            suffix: None,
            // A chat template writes its own.
            add_special_tokens: false,
            echo: false,
            continued,
            tools: Some(tools),
            ignored,
        };
        let (options, generation) = shared.generation(own, backend)?;
        Ok((Self(options), generation))
    }

    async fn respond(self, delivery: Delivery) -> Response {
        openai::respond::<Self>(self.0, delivery).await
    }
}

impl ChatFields {
    fn logprobs(&self) -> Result<Option<Tops>, ApiError> {
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

/// The chat of `messages` with the fields of `body` that its template sees, its tools, and the hints
/// that the template cannot follow.
///
/// # Errors
/// Faults of the fields.
pub(super) fn conversation(
    messages: Messages,
    body: &JsonBody<'_>,
    backend: &Backend,
) -> Result<(Conversation, Tools, Vec<&'static str>), ApiError> {
    let messages = messages::chat(messages)?;
    let (tools, variables) = body.read::<ToolFields>()?.tools()?;
    let mut chat = Conversation {
        messages,
        tools: tools.listed.clone(),
        variables,
    };
    let EffortField { reasoning_effort } = body.read()?;
    let mut switches = Switches::new(&mut chat, backend);
    switches.follow(
        "reasoning_effort",
        reasoning_effort.as_ref().map(Thinking::effort),
    );
    let ignored = switches.ignored;
    Ok((chat, tools, ignored))
}

/// Only an answer can be continued.
pub(super) fn check_continuation(continued: bool, messages: &[Message]) -> Result<(), ApiError> {
    let last = messages.last();
    if !continued || last.is_some_and(|message| message.role == "assistant") {
        return Ok(());
    }
    let (code, rest) = (
        ErrorCode::InvalidValue,
        "needs a final message of the assistant",
    );
    Err(ApiError::field(code, "continue_final_message", rest))
}

/// A choice of an answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ChatChoice")]
pub struct Choice<'a> {
    index: usize,
    message: AssistantMessage,
    #[serde(flatten)]
    rest: ChoiceRest<'a>,
}

/// A choice of a chunk.
#[derive(Debug, Serialize)]
pub struct ChunkChoice<'a> {
    index: usize,
    delta: MessageDelta<'a>,
    #[serde(flatten)]
    rest: ChoiceRest<'a>,
}

/// The fields after the text.
#[derive(Debug, Serialize, JsonSchema)]
struct ChoiceRest<'a> {
    #[schemars(with = "Option<Map<String, Value>>")]
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
}

impl<'a> From<ChunkExtras<'a>> for ChoiceRest<'a> {
    fn from(extras: ChunkExtras<'a>) -> Self {
        Self {
            logprobs: extras.logprobs.map(ChatLogprobs),
            finish_reason: extras.finish_reason,
            token_ids: extras.token_ids,
            prompt_token_ids: extras.prompt_token_ids,
        }
    }
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

impl From<Call> for ToolCall {
    fn from(call: Call) -> Self {
        Self {
            id: call.id,
            kind: "function",
            function: CalledFunction {
                name: call.name,
                arguments: call.arguments,
            },
        }
    }
}

impl AssistantMessage {
    fn new(delta: &Delta) -> Self {
        let said = match &delta.parts {
            Some(parts) => Said::of(parts),
            None => Said {
                text: delta.text.clone(),
                ..Said::default()
            },
        };
        // A message of calls alone has no content.
        let has_content = said.calls.is_empty() || !said.text.trim().is_empty();
        Self {
            role: "assistant",
            content: has_content.then_some(said.text),
            reasoning_content: said.reasoning,
            tool_calls: said.calls.into_iter().map(ToolCall::from).collect(),
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
            ChunkKind::Role => Self {
                role: Some("assistant"),
                content: Some(""),
                ..Self::default()
            },
            ChunkKind::Text(text) => Self {
                content: Some(text),
                ..Self::default()
            },
            ChunkKind::Part(Part::Text(text)) => Self::new(ChunkKind::Text(text)),
            ChunkKind::Part(Part::Reasoning(text)) => Self {
                reasoning_content: Some(text),
                ..Self::default()
            },
            ChunkKind::Part(Part::Call { index, id, name }) => Self::call(CallDelta {
                index: *index,
                id: Some(id),
                kind: Some("function"),
                function: FunctionDelta {
                    name: Some(name),
                    arguments: "",
                },
            }),
            ChunkKind::Part(Part::Arguments { index, text }) => Self::call(CallDelta {
                index: *index,
                id: None,
                kind: None,
                function: FunctionDelta {
                    name: None,
                    arguments: text,
                },
            }),
            ChunkKind::Finish => Self::default(),
        }
    }

    fn call(call: CallDelta<'a>) -> Self {
        Self {
            tool_calls: Some([call]),
            ..Self::default()
        }
    }
}

impl Shape for Chat {
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";
    const NAMES_ROLE: bool = true;
    type Choice<'a> = Choice<'a>;
    type ChunkChoice<'a> = ChunkChoice<'a>;

    fn choice<'a>(delta: &'a Delta, extras: ChunkExtras<'a>) -> Choice<'a> {
        Choice {
            index: delta.index,
            message: AssistantMessage::new(delta),
            rest: extras.into(),
        }
    }

    fn chunk<'a>(index: usize, kind: ChunkKind<'a>, extras: ChunkExtras<'a>) -> ChunkChoice<'a> {
        ChunkChoice {
            index,
            delta: MessageDelta::new(kind),
            rest: extras.into(),
        }
    }
}
