//! `POST /v1/chat/completions`.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use step::TokenId;
use text::Message;

use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::messages::{self, Messages};
use super::fields::shared::{AnswerOptions, OwnFields, Shared, Tops};
use super::fields::types::{Count, Int, Required};
use super::openai::logprobs::ChatLogprobs;
use super::openai::{self, ChunkExtras, ChunkKind, Shape};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::{FieldNames, Generation, Input};

/// The endpoint, with the shape of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Chat(AnswerOptions);

/// The fields of this endpoint alone.
#[derive(Clone, Debug, Deserialize)]
struct ChatFields {
    messages: Required<Messages>,
    max_tokens: Option<Count<1>>,
    max_completion_tokens: Option<Count<1>>,
    logprobs: Option<bool>,
    top_logprobs: Option<Tops>,
    continue_final_message: Option<bool>,
}

impl Endpoint for Chat {
    const PATH: &'static str = "/v1/chat/completions";
    const ID_PREFIX: &'static str = "chatcmpl";
    const OPERATION: &'static str = "chat";

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: ChatFields = body.read()?;
        let shared = Shared::read(body, backend)?;
        let (logprobs, max_tokens) = (fields.logprobs()?, fields.max_tokens);
        let continued = fields.continue_final_message.unwrap_or(false);
        let messages = messages::chat(fields.messages.0)?;
        check_continuation(continued, &messages)?;
        let own = OwnFields {
            input: Input::Chat(messages),
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
            (false, Some(_)) => {
                let (code, rest) = (ErrorCode::InvalidValue, "needs logprobs to be true");
                Err(ApiError::field(code, "top_logprobs", rest))
            }
        }
    }
}

/// Only an answer can be continued.
fn check_continuation(continued: bool, messages: &[Message]) -> Result<(), ApiError> {
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
#[derive(Debug, Serialize)]
pub struct Choice<'a> {
    index: usize,
    message: AssistantMessage<'a>,
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
#[derive(Debug, Serialize)]
struct ChoiceRest<'a> {
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

#[derive(Debug, Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Debug, Default, Serialize)]
struct MessageDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl Shape for Chat {
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";
    const NAMES_ROLE: bool = true;
    type Choice<'a> = Choice<'a>;
    type ChunkChoice<'a> = ChunkChoice<'a>;

    fn choice<'a>(index: usize, text: &'a str, extras: ChunkExtras<'a>) -> Choice<'a> {
        Choice {
            index,
            message: AssistantMessage {
                role: "assistant",
                content: text,
            },
            rest: extras.into(),
        }
    }

    fn chunk<'a>(index: usize, kind: ChunkKind<'a>, extras: ChunkExtras<'a>) -> ChunkChoice<'a> {
        let (role, content) = match kind {
            ChunkKind::Role => (Some("assistant"), Some("")),
            ChunkKind::Text(text) => (None, Some(text)),
            ChunkKind::Finish => (None, None),
        };
        ChunkChoice {
            index,
            delta: MessageDelta { role, content },
            rest: extras.into(),
        }
    }
}
