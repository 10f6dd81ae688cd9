//! A request to the engine: one sequence to generate.

use std::sync::Arc;

use decode::{Constraint, Offset, Pin};
use step::{Bias, Sampling, TokenId};

use crate::decoding::Decoding;

/// The client of a request. Clients share the engine evenly, whatever the number of their sequences. The
/// number has no meaning of its own; requests of no known client have 0 in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One sequence to generate, in tokens.
#[derive(Clone, Debug)]
pub struct Request {
    /// Prompt ids, mask and stop ids among them allowed; never changed. May be empty.
    pub prompt: Vec<TokenId>,
    /// Tokens in and after the generation, never changed.
    pub given: Given,
    /// L, the generation budget in tokens; 0 finishes at once without a forward.
    pub max_tokens: u32,
    /// Schedule, commit rule and cache policy.
    pub decoding: Decoding,
    /// The draw of tokens; the engine sets its `clock`.
    pub sampling: Sampling,
    /// Every id that ends the generation, the model's and the request's.
    pub stop_tokens: Vec<TokenId>,
    /// Stop tokens are banned at offsets below this (`max_tokens` = ignore EOS).
    pub min_tokens: u32,
    /// Changes of logits.
    pub logits: LogitChanges,
    /// Output in addition to the tokens.
    pub extras: Extras,
    /// A grammar that the emitted tokens follow. It switches forks off.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The prompt looks like code: `fork = auto` starts with the newline rule.
    pub code_prompt: bool,
    /// The client and its wish.
    pub sender: Sender,
}

/// Tokens that stand in and after a generation from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Ids after the generation (infilling), at the positions that follow its whole budget. Every
    /// row sees them. Full attention only.
    pub suffix: Vec<TokenId>,
    /// Tokens on the canvas, by ascending offset, below the budget. Not with causal attention. Where
    /// weights read noise, an editable one stands there in the first step alone.
    pub pins: Vec<Pin>,
    /// The answer as the client expects it. A schedule that copies drafts copies them from here alone.
    pub prediction: Vec<TokenId>,
}

/// Changes of the logits of a sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitChanges {
    /// Biases added to every row.
    pub biases: Vec<Bias>,
    /// Penalties of tokens that occur already.
    pub penalties: Penalties,
    /// The only tokens that may be written; `None` = all. Not with a constraint.
    pub only: Option<Arc<[TokenId]>>,
}

/// Output of a sequence in addition to its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Number of tokens to report with the log-probability of every emitted token, the most probable
    /// ones if none are `listed`; `None` = no log-probabilities.
    pub logprobs: Option<u8>,
    /// The tokens to report, as many as `logprobs` says. Not with a constraint.
    pub listed: Option<Arc<[TokenId]>>,
    /// True if [`crate::Event::Step`] events are wanted.
    pub trace: bool,
    /// Offsets that are read and not generated: the sequence ends after one forward, with an
    /// [`crate::Event::Labels`].
    pub labels: Option<Labels>,
}

/// Offsets of the canvas whose distribution over some tokens is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The offsets, ascending, below the budget, at least one; no pin stands there.
    pub offsets: Vec<Offset>,
    /// The tokens, `1..=255` different ones, the mask not among them.
    pub tokens: Arc<[TokenId]>,
}

/// The sender of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The client.
    pub client: ClientId,
    /// Lower values start first among waiting sequences, under [`crate::ByPriority`]. 0 is neutral.
    pub priority: i32,
}

impl Request {
    /// A greedy request without stop tokens and biases, every other field neutral.
    pub fn new(prompt: Vec<TokenId>, max_tokens: u32, decoding: Decoding) -> Self {
        Self {
            prompt,
            given: Given::default(),
            max_tokens,
            decoding,
            sampling: Sampling::GREEDY,
            stop_tokens: Vec::new(),
            min_tokens: 0,
            logits: LogitChanges::default(),
            extras: Extras::default(),
            constraint: None,
            code_prompt: false,
            sender: Sender::default(),
        }
    }
}

/// Penalties of tokens that occur already, as biases of every row. A step's commits count from the
/// next step on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Subtracted from a token's logit for every time it is committed; 0 = off.
    pub frequency: f32,
    /// Subtracted once from the logit of a token that is committed; 0 = off.
    pub presence: f32,
    /// [`Bias::repetition`] of a token that is committed or in the prompt or suffix, `> 0`;
    /// 1 = off.
    pub repetition: f32,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { frequency: 0.0, presence: 0.0, repetition: 1.0 }
    }
}

/// The reason for which a request can never be served here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Prompt plus budget exceed the limit of the model or the engine.
    #[error("{tokens} tokens of prompt and max_tokens exceed the limit of {limit}")]
    TooLong {
        /// Prompt length plus budget.
        tokens: u32,
        /// Most positions of a sequence.
        limit: u32,
    },
    /// Its KV pages do not fit into an empty pool.
    #[error("the sequence needs {pages} KV pages, the pool has {limit}")]
    TooManyPages {
        /// Most pages that the sequence can hold.
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
    /// The model or the request does not support the commit rule or the cache policy.
    #[error("{field}: {message}")]
    Rule {
        /// The setting of the decoder.
        field: &'static str,
        /// The reason, as a continuation of the field's name.
        message: String,
    },
    /// The model does not support a field of the request.
    #[error("{field}: {message}")]
    Field {
        /// The field.
        field: &'static str,
        /// The reason, as a continuation of the field's name.
        message: String,
    },
}
