//! `POST /v1/completions`.

use axum::response::Response;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::logprobs::ListedTokens;
use super::fields::numbers::{Count, Int};
use super::fields::prompt::Prompt;
use super::fields::shared::{AnswerOptions, ChoiceCount, Draft, Tops};
use super::fields::table::Fields;
use super::fields::tool_choice::{Choice, ToolChoice};
use super::fields::types::{List, Object, Required};
use super::openai::logprobs::CompletionLogprobs;
use super::openai::{self, AnswerChoice, ChunkKind, Shape};
use super::route::{AnswerSchema, EVENTS, JSON};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::Generation;

/// Budget of a completion that names none, where the context has room for it.
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
    /// The budget in tokens; by default the rest of the context, at most 16.
    max_tokens: Option<Count<0>>,
    /// Adds the log-probabilities of the tokens to the answer, with this number of most probable tokens
    /// at each position.
    logprobs: Option<Tops>,
    /// The number of choices that are generated; the `n` most probable ones are returned.
    best_of: Option<ChoiceCount>,
    /// Only an empty list is supported here.
    #[schemars(with = "Option<List<Map<String, Value>>>")]
    tools: Option<List<Object<IgnoredAny>>>,
    /// Only `none` and `auto` are supported here.
    #[schemars(with = "Option<Choice<Map<String, Value>>>")]
    tool_choice: Option<Choice<Object<IgnoredAny>>>,
}

impl Endpoint for Completions {
    const PATH: &'static str = "/v1/completions";
    const ID_PREFIX: &'static str = "cmpl";
    const SUMMARY: &'static str = "Continues texts or token lists.";
    const ANSWERS: &'static [&'static str] = &[JSON, EVENTS];
    const ANSWER: Option<AnswerSchema> = Some(|schemas| {
        schemas.subschema_for::<openai::Response<'static, AnswerChoice<'static, Self>>>()
    });

    fn fields() -> Fields {
        Fields::new::<ListedTokens>().and_all(&Draft::fields::<CompletionFields>())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: CompletionFields = body.read()?;
        let mut draft = Draft::read(body, backend)?;
        fields.check(&draft)?;
        draft.unsupported = fields.unsupported();
        let generation = &mut draft.generation;
        let prompts = &mut generation.prompts;
        prompts.input = fields.prompt.0.input(backend.engine.limits().vocab_size)?;
        prompts.suffix = fields.suffix.filter(|suffix| !suffix.is_empty());
        prompts.add_special_tokens = fields.add_special_tokens.unwrap_or(true);
        generation.text.echo = fields.echo.unwrap_or(false);
        generation.stops.max_tokens = fields.max_tokens.map(Int::count);
        generation.stops.default_tokens = Some(DEFAULT_TOKENS);
        if let Some(best_of) = fields.best_of {
            generation.choices.best_of = best_of.count();
        }
        body.read::<ListedTokens>()?.list(fields.logprobs, &mut draft, backend)?;
        let (options, generation) = draft.finish(None, backend)?;
        Ok((Self(options), generation))
    }

    async fn respond(self, delivery: Delivery) -> Response {
        openai::respond::<Self>(self.0, delivery).await
    }
}

impl CompletionFields {
    /// Checks combinations of fields.
    fn check(&self, draft: &Draft) -> Result<(), ApiError> {
        let refused = |code, param: &str, rest: &str| Err(ApiError::field(code, param, rest));
        if self.echo == Some(true) && self.logprobs.is_some() {
            let rest = "is not supported with logprobs: prompts have no log-probabilities";
            return refused(ErrorCode::UnsupportedValue, "echo", rest);
        }
        let n = draft.generation.choices.n;
        match self.best_of.map(Int::count) {
            Some(best_of) if best_of < n => {
                let rest = format!("must be at least n ({n}), got {best_of}");
                return refused(ErrorCode::InvalidValue, "best_of", &rest);
            }
            Some(best_of) if best_of > n && draft.options.stream.is_some() => {
                let rest = "must be n where stream is true: the best are known only at the end";
                return refused(ErrorCode::InvalidValue, "best_of", rest);
            }
            _ => {}
        }
        Ok(())
    }

    /// The fault of a field that asks for calls.
    fn unsupported(&self) -> Option<ApiError> {
        let has_tools = self.tools.as_ref().is_some_and(|List(tools)| !tools.is_empty());
        let (param, neutral) = match &self.tool_choice {
            _ if has_tools => ("tools", "[]"),
            None | Some(Choice::Word(ToolChoice::None | ToolChoice::Auto)) => return None,
            Some(_) => ("tool_choice", "none or auto"),
        };
        let rest = format!("is not supported by this server; only {neutral} is");
        let code = ErrorCode::UnsupportedValue;
        Some(ApiError::field(code, param, rest))
    }
}

/// The content of a choice.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Completion")]
pub struct CompletionContent<'a> {
    text: &'a str,
}

impl Shape for Completions {
    const OBJECT: &'static str = "text_completion";
    const CHUNK_OBJECT: &'static str = "text_completion";
    const NAMES_ROLE: bool = false;
    type Content<'a> = CompletionContent<'a>;
    type ChunkContent<'a> = CompletionContent<'a>;
    type Logprobs<'a> = CompletionLogprobs<'a>;

    fn content(delta: &Delta) -> CompletionContent<'_> {
        CompletionContent { text: &delta.text }
    }

    fn chunk(kind: ChunkKind<'_>) -> CompletionContent<'_> {
        let text = match kind {
            ChunkKind::Text(text) => text,
            // Completions have neither calls nor reasoning.
            ChunkKind::Part(_) | ChunkKind::Role | ChunkKind::Finish => "",
        };
        CompletionContent { text }
    }
}
