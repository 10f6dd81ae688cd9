//! Caps on the sequences and tokens of one request.

use engine::Limits;

use crate::error::{ApiError, ErrorCode};
use crate::http::settings::Settings;
use crate::pipeline::encode::Prompt;
use crate::pipeline::generation::{Choices, Generation};

/// Maximum biases of `logit_bias` over all sequences of a request: every sequence has its own copy.
const MAX_BIASES: usize = 1 << 19;

/// The caps of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    sequences: usize,
    /// Sequences for which the engine's queue has room: a request enters it as a whole.
    waiting: usize,
    tokens: u64,
}

impl Caps {
    /// The caps of `settings` and of an engine with `limits`.
    pub fn new(settings: &Settings, limits: Limits) -> Self {
        Self {
            sequences: settings.limits.max_sequences as usize,
            waiting: limits.max_waiting as usize,
            tokens: settings.limits.max_request_tokens,
        }
    }

    /// Checks the number of sequences: prompts times `best_of`.
    ///
    /// # Errors
    /// `invalid_value` of the field that asks for too many.
    pub fn check_sequences(&self, generation: &Generation) -> Result<(), ApiError> {
        let prompts = generation.prompts.input.prompts();
        let Choices { n, best_of } = generation.choices;
        let choices = best_of as usize;
        let name = match best_of > n {
            true => "best_of",
            false => "n",
        };
        let (most, key) = match self.sequences <= self.waiting {
            true => (self.sequences, "server.max_sequences"),
            false => (self.waiting, "engine.max_waiting"),
        };
        let sequences = prompts.saturating_mul(choices);
        if sequences > most {
            let param = if prompts > most { generation.names.prompt } else { name };
            let rest = format!(
                "allows at most {most} sequences ({key}), got {prompts} prompts x {name} {choices}"
            );
            return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        }
        let biases = generation.sampling.biases.len().saturating_mul(sequences);
        if biases > MAX_BIASES {
            let rest = format!(
                "allows at most {MAX_BIASES} members over all sequences, got {} x {sequences}",
                generation.sampling.biases.len()
            );
            return Err(ApiError::field(ErrorCode::InvalidValue, "logit_bias", rest));
        }
        Ok(())
    }

    /// Checks the tokens of all sequences: prompt, suffix and budget of each. With
    /// log-probabilities, every token of the budget counts once more for each of the most probable
    /// tokens that its answer names.
    ///
    /// # Errors
    /// `invalid_value` of the budget's field.
    pub fn check_tokens(
        &self,
        generation: &Generation,
        prompts: &[Prompt],
    ) -> Result<(), ApiError> {
        let each = 1 + u64::from(generation.logprobs.as_ref().map_or(0, |given| given.count));
        let tokens = |prompt: &Prompt| prompt.tokens() + each * u64::from(prompt.max_tokens);
        let total: u64 = prompts.iter().map(tokens).sum();
        let total = total.saturating_mul(u64::from(generation.choices.best_of));
        if total <= self.tokens {
            return Ok(());
        }
        let sequences = prompts.len() * generation.choices.best_of as usize;
        let rest = format!(
            "allows at most {} tokens over all sequences (server.max_request_tokens), got {total} \
             in {sequences} sequences: prompt and budget of each, and the most probable tokens of \
             logprobs",
            self.tokens
        );
        let param = generation.names.max_tokens;
        Err(ApiError::field(ErrorCode::InvalidValue, param, rest))
    }
}
