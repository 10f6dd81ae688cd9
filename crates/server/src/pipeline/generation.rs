//! A generation request, independent of its endpoint.

use std::sync::Arc;

use crate::pipeline::written::Piece;
use engine::Penalties;
use engine::decoding::Decoding;
use step::{Bias, TokenId};
use text::{Conversation, GrammarSpec, ReasoningFormat, SpecialTokens, ToolFormat};

/// One generation request, checked field by field; nothing is encoded yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The prompts.
    pub prompts: Prompts,
    /// The number of choices.
    pub choices: Choices,
    /// Temperature, filters, biases and seed.
    pub sampling: Sampling,
    /// Ends of a choice: the budget, and stops before it.
    pub stops: Stops,
    /// Grammar, calls and reasoning.
    pub format: AnswerFormat,
    /// Optional parts of a choice's text.
    pub text: TextFields,
    /// The log-probabilities that are delivered.
    pub logprobs: Option<LogprobFields>,
    /// Waiting sequences with lower values start first.
    pub priority: i32,
    /// Delivers every step of the sequences.
    pub trace: bool,
    /// Schedule, commit rule and cache policy.
    pub decoding: Decoding,
    /// Names of the request fields that admission may refuse.
    pub names: FieldNames,
    /// Hints of the request that have no effect.
    pub ignored: Vec<&'static str>,
}

impl Generation {
    /// One choice per prompt of `input`, decoded with `decoding`; all else at its default.
    pub fn new(input: Input, decoding: Decoding) -> Self {
        let names = FieldNames {
            prompt: match input {
                Input::Texts(_) | Input::Ids(_) => "prompt",
                Input::Chat(_) => "messages",
            },
            max_tokens: "max_tokens",
        };
        Self {
            prompts: Prompts {
                input,
                suffix: None,
                canvas: None,
                prediction: None,
                add_special_tokens: true,
                truncate: None,
                is_continued: false,
            },
            choices: Choices { n: 1, best_of: 1 },
            sampling: Sampling::default(),
            stops: Stops::default(),
            format: AnswerFormat {
                structured: None,
                calls: ToolFormat::Hermes,
                reads_calls: false,
                reasoning: None,
            },
            text: TextFields::default(),
            logprobs: None,
            priority: 0,
            trace: false,
            decoding,
            names,
            ignored: Vec::new(),
        }
    }
}

impl Generation {
    /// Budget of a choice where the request names none and the context has room for it.
    pub fn default_budget(&self) -> u32 {
        self.stops.default_tokens.unwrap_or(self.decoding.default_budget())
    }
}

/// The prompts, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Texts, not encoded yet.
    Texts(Vec<String>),
    /// Token ids.
    Ids(Vec<Vec<TokenId>>),
    /// One chat.
    Chat(Conversation),
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

/// Names of request fields, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// The field of the prompt.
    pub prompt: &'static str,
    /// The field of the budget.
    pub max_tokens: &'static str,
}

/// The prompts, and their encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts {
    /// Texts, token ids or a chat.
    pub input: Input,
    /// The text after the generation (infilling).
    pub suffix: Option<String>,
    /// The canvas that the answer is written on; `None` = masks as many as the budget.
    pub canvas: Option<Vec<Piece>>,
    /// The expected answer, which is verified.
    pub prediction: Option<String>,
    /// True if text prompts get the special tokens that the checkpoint puts around texts.
    pub add_special_tokens: bool,
    /// Keeps only this many tokens of every prompt, its last ones.
    pub truncate: Option<usize>,
    /// The final message of a chat is an answer to continue.
    pub is_continued: bool,
}

/// The number of choices of each prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Choices, at least 1.
    pub n: u32,
    /// Sequences, at least `n`; the `n` most likely ones are the choices.
    pub best_of: u32,
}

/// Sampling as requested; `None` = the model's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// 0..2.
    pub temperature: Option<f64>,
    /// 0..1.
    pub top_p: Option<f64>,
    /// 0..1.
    pub min_p: Option<f64>,
    /// -1, 0 and more than 32 bits = off.
    pub top_k: Option<i64>,
    /// `None` = random.
    pub seed: Option<i64>,
    /// Added to the logits of single tokens, at most one per token.
    pub biases: Vec<Bias>,
    /// Penalties of tokens that occur already.
    pub penalties: Penalties,
    /// The only tokens of an answer.
    pub only: Option<Arc<[TokenId]>>,
}

/// The log-probabilities of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogprobFields {
    /// Number of tokens named at each position.
    pub count: u8,
    /// These tokens; `None` = the most probable ones.
    pub listed: Option<Arc<[TokenId]>>,
    /// True if tokens are named by their ids.
    pub by_id: bool,
}

impl LogprobFields {
    /// The `count` most probable tokens at each position, by their texts.
    pub fn of_most_probable(count: u8) -> Self {
        Self { count, listed: None, by_id: false }
    }
}

/// The format of the answers: their grammar, and the parts that are read from them.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerFormat {
    /// The grammar of every choice.
    pub structured: Option<Structured>,
    /// The model's format of calls, in a chat's history and in answers.
    pub calls: ToolFormat,
    /// True if calls are read from the answers.
    pub reads_calls: bool,
    /// The format of the reasoning that is read from the answers.
    pub reasoning: Option<ReasoningFormat>,
}

impl AnswerFormat {
    /// True if the answers have parts: reasoning, text and calls.
    pub fn has_parts(&self) -> bool {
        self.reads_calls || self.reasoning.is_some()
    }
}

/// Ends of a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Budget of a choice in tokens; `None` = the rest of the context, at most the default.
    pub max_tokens: Option<u32>,
    /// The default; `None` = the decoder's, at most 1,024.
    pub default_tokens: Option<u32>,
    /// Stop strings, none empty.
    pub strings: Vec<String>,
    /// Stop ids in addition to the model's.
    pub tokens: Vec<TokenId>,
    /// The model's own stop ids are never committed.
    pub ignore_eos: bool,
    /// The model's own stop ids are tokens as any other, and end nothing.
    pub keeps_eos: bool,
    /// No stop of any kind before this many tokens.
    pub min_tokens: u32,
}

/// Optional parts of a choice's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextFields {
    /// The stop string that ended the choice.
    pub stop_string: bool,
    /// Special tokens.
    pub special_tokens: bool,
    /// The prompt, before the generated text.
    pub echo: bool,
}

impl TextFields {
    /// The manner in which a detokenizer shows special tokens.
    pub fn detokenizer(self) -> SpecialTokens {
        match self.special_tokens {
            true => SpecialTokens::KeepButMask,
            false => SpecialTokens::Skip,
        }
    }
}

/// A grammar that every choice follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Structured {
    /// The request field that gave it, for errors.
    pub field: &'static str,
    /// The grammar.
    pub spec: GrammarSpec,
    /// The request fields of its parts, of the schemas of tools in their order.
    pub parts: Vec<String>,
}

impl Structured {
    /// A grammar without parts.
    pub fn new(field: &'static str, spec: GrammarSpec) -> Self {
        Self { field, spec, parts: Vec::new() }
    }
}
