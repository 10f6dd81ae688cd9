//! What a caller asks of the engine: one sequence to generate.

use decode::Constraint;
use step::{Bias, Sampling, TokenId};

use crate::decoding::Decoding;

/// One sequence to generate, in tokens.
#[derive(Clone, Debug)]
pub struct Request {
    /// Prompt ids; never touched, whatever ids it holds. May be empty.
    pub prompt: Vec<TokenId>,
    /// Ids that stand behind the generation, at the positions that follow its whole budget
    /// (infilling); seen by every row and, like the prompt, never touched. Full attention only.
    pub suffix: Vec<TokenId>,
    /// L, the generation budget in tokens; 0 finishes at once without a forward.
    pub max_tokens: u32,
    /// Schedule, commit rule and cache policy.
    pub decoding: Decoding,
    /// How tokens are drawn; its `clock` is set by the engine.
    pub sampling: Sampling,
    /// E: every id that ends the generation (the model's and the request's).
    pub stop_tokens: Vec<TokenId>,
    /// Stop tokens are barred as candidates at offsets below this (`max_tokens` = ignore EOS).
    pub min_tokens: u32,
    /// Biases added to every row of the sequence.
    pub biases: Vec<Bias>,
    /// What tokens that occur already lose.
    pub penalties: Penalties,
    /// How many of the most probable tokens come with the probability of every emitted token;
    /// `None` = no probabilities.
    pub logprobs: Option<u8>,
    /// A grammar that the emitted tokens follow. Forks are off under one.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The prompt is code-shaped: `fork = auto` starts with the newline rule.
    pub code_prompt: bool,
    /// Whether [`crate::Event::Step`] events are wanted.
    pub trace: bool,
}

impl Request {
    /// A greedy request without stop tokens, biases or any other wish.
    pub fn new(prompt: Vec<TokenId>, max_tokens: u32, decoding: Decoding) -> Self {
        Self {
            prompt,
            suffix: Vec::new(),
            max_tokens,
            decoding,
            sampling: Sampling::GREEDY,
            stop_tokens: Vec::new(),
            min_tokens: 0,
            biases: Vec::new(),
            penalties: Penalties::default(),
            logprobs: None,
            constraint: None,
            code_prompt: false,
            trace: false,
        }
    }
}

/// What tokens that occur already lose, as biases of every row. A step's commits count from the
/// next step on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Taken from a token's logit for every time it is committed; 0 = off.
    pub frequency: f32,
    /// Taken once from the logit of a token that is committed; 0 = off.
    pub presence: f32,
    /// [`Bias::repetition`] of a token that is committed or stands in prompt or suffix, `> 0`;
    /// 1 = off.
    pub repetition: f32,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            frequency: 0.0,
            presence: 0.0,
            repetition: 1.0,
        }
    }
}

/// Why a request can never be served here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Prompt plus budget exceed the model's or the engine's length.
    #[error("{tokens} tokens of prompt and max_tokens exceed the limit of {limit}")]
    TooLong {
        /// Prompt length plus budget.
        tokens: u32,
        /// Most positions a sequence may have.
        limit: u32,
    },
    /// Its KV pages would not fit even an empty pool.
    #[error("the sequence needs {pages} KV pages, the pool has {limit}")]
    TooManyPages {
        /// Worst case of the sequence.
        pages: u32,
        /// Pages of the pool.
        limit: u32,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The offending id.
        token: TokenId,
        /// Size of the vocabulary.
        vocab_size: u32,
    },
    /// Model or request do not go with the commit rule.
    #[error("{field}: {message}")]
    Rule {
        /// The setting of the decoder.
        field: &'static str,
        /// Why not; reads on from the field's name.
        message: String,
    },
    /// The model cannot do what a field of the request asks for.
    #[error("{field}: {message}")]
    Field {
        /// The field.
        field: &'static str,
        /// Why not; reads on from the field's name.
        message: String,
    },
}
