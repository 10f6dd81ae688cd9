//! `POST /v1/completions`.

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use step::TokenId;

use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::prompt::Prompt;
use super::fields::shared::{AnswerOptions, Choices, OwnFields, Shared, Tops};
use super::fields::table::Fields;
use super::fields::types::{Count, Int, Required};
use super::openai::logprobs::CompletionLogprobs;
use super::openai::{self, ChunkExtras, ChunkKind, Shape};
use super::route::{AnswerSchema, EVENTS, JSON};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::{FieldNames, Generation};

/// Budget of a completion that names none.
const DEFAULT_TOKENS: u32 = 16;

/// The endpoint, with the shape of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Completions(AnswerOptions);

/// The fields of this endpoint alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct CompletionFields {
    /// One text or token list, or several.
    prompt: Required<Prompt>,
    /// The text after the generated tokens.
    suffix: Option<String>,
    /// Returns the prompt before the text.
    echo: Option<bool>,
    /// Adds the tokens that the tokenizer puts around a text; true by default.
    add_special_tokens: Option<bool>,
    /// The budget in tokens; 16 by default.
    max_tokens: Option<Count<0>>,
    /// The answer has the log-probabilities of its tokens, and of so many alternatives to each.
    logprobs: Option<Tops>,
    /// Generates so many choices and returns the `n` most probable ones.
    best_of: Option<Choices>,
}

impl Endpoint for Completions {
    const PATH: &'static str = "/v1/completions";
    const ID_PREFIX: &'static str = "cmpl";
    const SUMMARY: &'static str = "Continues texts or token lists.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];
    const ANSWER: Option<AnswerSchema> =
        Some(|schemas| schemas.subschema_for::<openai::Response<'static, Choice<'static>>>());

    fn fields() -> Fields {
        Shared::fields::<CompletionFields>()
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: CompletionFields = body.read()?;
        let shared = Shared::read(body, backend)?;
        let input = fields.prompt.0.input(backend.engine.limits().vocab_size)?;
        let echo = fields.echo.unwrap_or(false);
        if echo && fields.logprobs.is_some() {
            let rest = "is not supported with logprobs: prompts have no exact likelihood here";
            return Err(ApiError::field(ErrorCode::UnsupportedValue, "echo", rest));
        }
        check_best_of(fields.best_of, &shared)?;
        let own = OwnFields {
            input,
            names: FieldNames {
                prompt: "prompt",
                max_tokens: "max_tokens",
            },
            max_tokens: Some(fields.max_tokens.map_or(DEFAULT_TOKENS, Int::count)),
            logprobs: fields.logprobs,
            best_of: fields.best_of,
            suffix: fields.suffix.filter(|suffix| !suffix.is_empty()),
            add_special_tokens: fields.add_special_tokens.unwrap_or(true),
            echo,
            continued: false,
            tools: None,
            ignored: Vec::new(),
        };
        let (options, generation) = shared.generation(own, backend)?;
        Ok((Self(options), generation))
    }

    async fn respond(self, delivery: Delivery) -> Response {
        openai::respond::<Self>(self.0, delivery).await
    }
}

fn check_best_of(best_of: Option<Choices>, shared: &Shared) -> Result<(), ApiError> {
    let n = shared.n();
    let rest = match best_of.map(Int::count) {
        Some(best_of) if best_of < n => format!("must be at least n ({n}), got {best_of}"),
        Some(best_of) if best_of > n && shared.is_stream() => {
            "must be n where stream is true: the best are known only at the end".to_owned()
        }
        _ => return Ok(()),
    };
    Err(ApiError::field(ErrorCode::InvalidValue, "best_of", rest))
}

/// A choice of an answer or of a chunk.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CompletionChoice")]
pub struct Choice<'a> {
    index: usize,
    text: &'a str,
    #[schemars(with = "Option<Map<String, Value>>")]
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
}

impl<'a> Choice<'a> {
    fn new(index: usize, text: &'a str, extras: ChunkExtras<'a>) -> Self {
        Self {
            index,
            text,
            logprobs: extras.logprobs.map(CompletionLogprobs),
            finish_reason: extras.finish_reason,
            token_ids: extras.token_ids,
            prompt_token_ids: extras.prompt_token_ids,
        }
    }
}

impl Shape for Completions {
    const OBJECT: &'static str = "text_completion";
    const CHUNK_OBJECT: &'static str = "text_completion";
    const NAMES_ROLE: bool = false;
    type Choice<'a> = Choice<'a>;
    type ChunkChoice<'a> = Choice<'a>;

    fn choice<'a>(delta: &'a Delta, extras: ChunkExtras<'a>) -> Choice<'a> {
        Choice::new(delta.index, &delta.text, extras)
    }

    fn chunk<'a>(index: usize, kind: ChunkKind<'a>, extras: ChunkExtras<'a>) -> Choice<'a> {
        let text = match kind {
            ChunkKind::Text(text) => text,
            // Completions have neither calls nor reasoning.
            ChunkKind::Part(_) | ChunkKind::Role | ChunkKind::Finish => "",
        };
        Choice::new(index, text, extras)
    }
}
