//! A generation request, parsed and checked, before anything is encoded.

mod chat;
mod common;
mod completions;
mod diffusion;
mod may;
mod structured;
mod tokens;
mod trace;

use std::ops::RangeInclusive;

use engine::Penalties;
use engine::decoding::{Decoding, DecodingSpec};
use text::{Message, SpecialTokens};

use crate::error::{ApiError, ErrorCode, clip};
use crate::fields::Fields;
use crate::json::{Object, parse_object};
use step::{Bias, TokenId};

pub use structured::Structured;
pub use tokens::{TokenizeRequest, detokenize, tokenize};

/// Most sequences of one request: prompts times `best_of`.
pub const MAX_SEQUENCES: usize = 1024;

/// Range of `n` and `best_of`.
const CHOICES: RangeInclusive<i64> = 1..=128;

/// The paths that generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// `POST /v1/completions`.
    Completions,
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/diffusion/trace`, with a body of either of the others.
    Trace,
}

impl Route {
    /// All, in the order of [`Route::index`].
    pub const ALL: [Self; 3] = [Self::Completions, Self::Chat, Self::Trace];

    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
            Self::Trace => "/v1/diffusion/trace",
        }
    }

    /// Its place in [`Route::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::Completions => 0,
            Self::Chat => 1,
            Self::Trace => 2,
        }
    }
}

/// The two kinds of generation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// As for `/v1/completions`.
    Completions,
    /// As for `/v1/chat/completions`.
    Chat,
}

impl Endpoint {
    /// The field that holds the prompt.
    pub fn prompt_field(self) -> &'static str {
        match self {
            Self::Completions => "prompt",
            Self::Chat => "messages",
        }
    }
}

/// Everything a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    /// Which fields it has and how it is answered.
    pub endpoint: Endpoint,
    /// Every step is reported.
    pub trace: bool,
    /// The model's name.
    pub model: String,
    /// What to continue.
    pub input: Input,
    /// What stands behind the generation (infilling).
    pub suffix: Option<String>,
    /// Whether texts get the tokens that the checkpoint puts around texts.
    pub add_special_tokens: bool,
    /// Budget in tokens; `None` = the rest of the context, at most 1,024.
    pub max_tokens: Option<u32>,
    /// The field that gave it, for errors.
    pub max_tokens_field: &'static str,
    /// How tokens are drawn.
    pub sampling: SamplingFields,
    /// Seed; `None` = random.
    pub seed: Option<i64>,
    /// Choices per prompt.
    pub n: u32,
    /// Sequences per prompt, at least `n`: the best of them are the choices.
    pub best_of: u32,
    /// Added to the logits of single tokens, each at most once.
    pub biases: Vec<Bias>,
    /// What tokens that occur already lose.
    pub penalties: Penalties,
    /// What every choice follows.
    pub structured: Option<Structured>,
    /// Only so many tokens of every prompt are kept, its last ones.
    pub truncate: Option<usize>,
    /// The final message of a chat is an answer that has only begun.
    pub continued: bool,
    /// What ends a choice early.
    pub stops: Stops,
    /// How the answer is shaped.
    pub output: Output,
    /// The decoder.
    pub decoding: Decoding,
}

/// The prompts, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Texts, still to be encoded.
    Texts(Vec<String>),
    /// Ids as they are.
    Ids(Vec<Vec<TokenId>>),
    /// One chat.
    Chat(Vec<Message>),
}

impl Input {
    /// Number of prompts.
    pub fn prompts(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Ids(lists) => lists.len(),
            Self::Chat(_) => 1,
        }
    }
}

/// Sampling as requested; `None` = the model's default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingFields {
    /// 0..2.
    pub temperature: Option<f64>,
    /// 0..1.
    pub top_p: Option<f64>,
    /// 0..1.
    pub min_p: Option<f64>,
    /// -1 and 0 = off.
    pub top_k: Option<i64>,
}

/// What ends a choice before its budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Stop strings, none empty.
    pub strings: Vec<String>,
    /// Stop ids besides the model's.
    pub tokens: Vec<TokenId>,
    /// The model's own stop ids are barred as candidates.
    pub ignore_eos: bool,
    /// No stop of any kind before this many tokens.
    pub min_tokens: u32,
}

/// How the answer is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Stop strings stay in the text.
    pub include_stop: bool,
    /// Choices carry token ids.
    pub return_token_ids: bool,
    /// Choices carry log-probabilities, with so many of the most probable tokens.
    pub logprobs: Option<u8>,
    /// Special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// The prompt precedes the text.
    pub echo: bool,
    /// As a stream, or in one piece.
    pub stream: Option<StreamFields>,
}

impl Output {
    /// Which special tokens show in texts.
    pub fn special_tokens(&self) -> SpecialTokens {
        if self.skip_special_tokens {
            SpecialTokens::Skip
        } else {
            SpecialTokens::KeepButMask
        }
    }
}

/// `stream_options` of a streamed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFields {
    /// A last chunk carries the usage.
    pub include_usage: bool,
    /// Every chunk carries the running totals.
    pub continuous: bool,
}

/// What checking needs to know of the model.
#[derive(Clone, Copy, Debug)]
pub struct Checks<'a> {
    /// The served name.
    pub model: &'a str,
    /// Tokens with a logit.
    pub vocab_size: u32,
    /// Settings of a request that names no preset.
    pub decoding: &'a DecodingSpec,
}

/// Parses and checks `body`, in the order JSON, types and ranges, combinations, support, model.
///
/// # Errors
/// The first fault.
pub fn parse(route: Route, body: &[u8], checks: Checks<'_>) -> Result<GenerationRequest, ApiError> {
    let object = parse_object(body)?;
    match route {
        Route::Completions => check(Endpoint::Completions, &object, checks),
        Route::Chat => check(Endpoint::Chat, &object, checks),
        Route::Trace => trace::check(&object, checks),
    }
}

fn check(
    endpoint: Endpoint,
    object: &Object,
    checks: Checks<'_>,
) -> Result<GenerationRequest, ApiError> {
    let fields = Fields::new(object, "");
    let vocab_size = checks.vocab_size;
    // Types and ranges.
    let model = fields.required("model")?;
    let model = crate::fields::text(model, || "model".to_owned())?.to_owned();
    let input = match endpoint {
        Endpoint::Completions => completions::input(fields, vocab_size)?,
        Endpoint::Chat => chat::input(fields)?,
    };
    let common = common::read(endpoint, fields, vocab_size)?;
    let (echo, suffix) = match endpoint {
        Endpoint::Completions => completions::extras(fields)?,
        Endpoint::Chat => (false, None),
    };
    // A chat template writes its own.
    let add_special_tokens = match endpoint {
        Endpoint::Completions => fields.boolean("add_special_tokens")?.unwrap_or(true),
        Endpoint::Chat => false,
    };
    let spec = diffusion::read(fields, checks.decoding)?;
    let structured = structured::read(fields)?;
    let may = may::read(endpoint, fields, vocab_size)?;
    // Combinations.
    let stream = common::stream(fields, common.stream)?;
    common.combinations(endpoint, input.prompts(), may.best_of)?;
    may.combinations(echo, common.n, common.stream)?;
    may.continuation(&input)?;
    let structured = structured.combinations(&common.stops)?;
    let decoding = diffusion::resolve(&spec)?;
    // Support.
    may.support()?;
    // Model.
    check_model(&model, checks.model)?;
    let output = Output {
        echo,
        logprobs: may.logprobs,
        stream,
        ..common.output
    };
    Ok(GenerationRequest {
        endpoint,
        trace: false,
        model,
        input,
        suffix,
        add_special_tokens,
        max_tokens: common.max_tokens,
        max_tokens_field: common.max_tokens_field,
        sampling: common.sampling,
        seed: common.seed,
        n: common.n,
        best_of: may.best_of.unwrap_or(common.n),
        biases: may.biases,
        penalties: may.penalties,
        structured,
        truncate: may.truncate,
        continued: may.continued,
        stops: common.stops,
        output,
        decoding,
    })
}

fn check_model(model: &str, served: &str) -> Result<(), ApiError> {
    if model == served {
        return Ok(());
    }
    let message = format!("the model '{}' does not exist", clip(model));
    let error = ApiError::new(ErrorCode::ModelNotFound, message);
    Err(ApiError {
        param: Some("model".to_owned()),
        ..error
    })
}
