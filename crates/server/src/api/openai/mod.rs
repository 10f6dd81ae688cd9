//! The envelope of OpenAI's generation endpoints: one JSON object, or a stream of chunks.

pub mod logprobs;
mod stream;

use axum::Json;
use axum::response::{IntoResponse, Response as HttpResponse};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use step::TokenId;
use text::Part;

use self::logprobs::AnswerLogprobs;
use super::fields::shared::AnswerOptions;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::{Answer, Delivery, StopReason};
use crate::pipeline::logprobs::ScoredToken;
use crate::pipeline::usage::Usage;

/// The parts of an answer that differ between the endpoints.
pub trait Shape: Send + 'static {
    /// `object` of an answer.
    const OBJECT: &'static str;
    /// `object` of a chunk.
    const CHUNK_OBJECT: &'static str;
    /// True if the first chunk of a choice names the role alone.
    const NAMES_ROLE: bool;
    /// The content of a choice of an answer.
    type Content<'a>: Serialize;
    /// The content of a choice of a chunk.
    type ChunkContent<'a>: Serialize;
    /// The log-probabilities of a choice.
    type Logprobs<'a>: Serialize + From<AnswerLogprobs<'a>>;

    /// The content of a choice of an answer, the join of its deltas.
    fn content(delta: &Delta) -> Self::Content<'_>;

    /// The content of a choice of a chunk.
    fn chunk(kind: ChunkKind<'_>) -> Self::ChunkContent<'_>;
}

/// The content of a chunk of one choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChunkKind<'a> {
    /// The role; the first chunk of a choice.
    Role,
    /// Text with its token ids.
    Text(&'a str),
    /// A part of an answer that has parts.
    Part(&'a Part),
    /// The end; the last chunk of a choice.
    Finish,
}

/// A choice of an answer or of a chunk: its content, and what the request asked for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{C}Choice")]
pub struct Choice<'a, C, L> {
    index: usize,
    #[serde(flatten)]
    content: C,
    #[schemars(with = "Option<Map<String, Value>>")]
    logprobs: Option<L>,
    finish_reason: Option<&'static str>,
    /// The stop string or the stop token of the request that ended the choice; in the last chunk only.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Option<StopReason<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
}

/// A choice of an answer in the shape `S`.
pub type AnswerChoice<'a, S> = Choice<'a, <S as Shape>::Content<'a>, <S as Shape>::Logprobs<'a>>;

/// Answers a generation request in the shape `S`.
pub async fn respond<S: Shape>(options: AnswerOptions, delivery: Delivery) -> HttpResponse {
    match options.stream {
        Some(_) => stream::respond::<S>(options, delivery),
        None => whole::<S>(options, delivery).await,
    }
}

/// The whole answer as one JSON object.
async fn whole<S: Shape>(options: AnswerOptions, mut delivery: Delivery) -> HttpResponse {
    match delivery.collect().await {
        Ok((choices, usage)) => {
            Json(response::<S>(&choices, options, delivery.answer(), usage)).into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// A whole answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AnswerOf{C}s")]
pub struct Response<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<C>,
    usage: Usage,
}

/// The answer with `choices`, each the join of its deltas.
fn response<'a, S: Shape>(
    choices: &'a [Delta],
    options: AnswerOptions,
    answer: &'a Answer,
    usage: Usage,
) -> Response<'a, AnswerChoice<'a, S>> {
    let has_ids = options.return_token_ids;
    let choice = |delta: &'a Delta| Choice {
        index: delta.index,
        content: S::content(delta),
        logprobs: answer_logprobs(answer, &delta.scored).map(S::Logprobs::from),
        finish_reason: delta.finish_name(),
        stop_reason: Some(answer.stop_reason(delta)),
        token_ids: has_ids.then_some(&delta.token_ids[..]),
        prompt_token_ids: has_ids.then(|| answer.prompt_ids(delta.index)),
    };
    Response {
        id: &answer.id,
        object: S::OBJECT,
        created: answer.created,
        model: &answer.model,
        system_fingerprint: &answer.fingerprint,
        choices: choices.iter().map(choice).collect(),
        usage,
    }
}

/// One chunk of a streamed answer.
#[derive(Debug, Serialize)]
struct Chunk<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "ChunkUsage::is_absent")]
    usage: ChunkUsage,
}

impl<'a, C> Chunk<'a, C> {
    fn new<S: Shape>(answer: &'a Answer, choices: Vec<C>, usage: ChunkUsage) -> Self {
        Self {
            id: &answer.id,
            object: S::CHUNK_OBJECT,
            created: answer.created,
            model: &answer.model,
            system_fingerprint: &answer.fingerprint,
            choices,
            usage,
        }
    }
}

/// `usage` of a chunk.
#[derive(Debug, Clone)]
enum ChunkUsage {
    /// No such key.
    Absent,
    /// `null`.
    Null,
    /// Totals.
    Totals(Box<Usage>),
}

impl ChunkUsage {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Serialize for ChunkUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_none(),
            Self::Totals(usage) => usage.serialize(serializer),
        }
    }
}

/// The log-probabilities of `scored`, if the request asked for them.
fn answer_logprobs<'a>(
    answer: &'a Answer,
    scored: &'a [ScoredToken],
) -> Option<AnswerLogprobs<'a>> {
    let fields = answer.logprobs.as_ref()?;
    Some(AnswerLogprobs { scored, tokenizer: &answer.tokenizer, by_id: fields.by_id })
}
