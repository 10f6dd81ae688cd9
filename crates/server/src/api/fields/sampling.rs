//! Fields of the sampling: temperature, filters, biases, penalties, seed.

use engine::Penalties;
use schemars::JsonSchema;
use serde::Deserialize;
use step::{Bias, TokenId};

use super::numbers::{BiasAmount, Count, Int, Penalty, RepetitionPenalty, Share, Temperature};
use super::types::Members;
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::Sampling;

/// The fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct SamplingFields {
    /// 0 is greedy, the default.
    temperature: Option<Temperature>,
    /// Samples from the most probable tokens whose probabilities sum to this share.
    top_p: Option<Share>,
    /// Samples from the tokens at least this share as probable as the most probable one.
    min_p: Option<Share>,
    /// Samples from this number of most probable tokens; -1, 0 and more than the vocabulary mean all.
    top_k: Option<Count<-1>>,
    /// The seed of the sampling noise; random without it.
    seed: Option<Int<{ i64::MIN }, { i64::MAX }>>,
    /// Amounts added to the logits of tokens, by token id.
    logit_bias: Option<Members<BiasAmount>>,
    /// OpenAI's penalty of a token for each of its occurrences.
    frequency_penalty: Option<Penalty>,
    /// OpenAI's penalty of a token that occurs.
    presence_penalty: Option<Penalty>,
    /// vLLM's factor for tokens that occur; 1 is neutral.
    repetition_penalty: Option<RepetitionPenalty>,
}

impl SamplingFields {
    /// The sampling of a request.
    ///
    /// # Errors
    /// As [`biases`].
    pub fn sampling(&self, vocab_size: u32) -> Result<Sampling, ApiError> {
        let penalty = |given: Option<Penalty>| given.map_or(0.0, |given| given.0 as f32);
        Ok(Sampling {
            temperature: self.temperature.map(|given| given.0),
            top_p: self.top_p.map(|given| given.0),
            min_p: self.min_p.map(|given| given.0),
            top_k: self.top_k.map(Int::get),
            seed: self.seed.map(Int::get),
            biases: match &self.logit_bias {
                Some(given) => biases(given, vocab_size)?,
                None => Vec::new(),
            },
            penalties: Penalties {
                frequency: penalty(self.frequency_penalty),
                presence: penalty(self.presence_penalty),
                repetition: self.repetition_penalty.map_or(1.0, |given| given.0 as f32),
            },
            only: None,
        })
    }
}

/// The biases of single tokens; an amount of 0 is none.
///
/// # Errors
/// A key that is no token id, or another spelling of one, so that no id comes twice.
fn biases(given: &Members<BiasAmount>, vocab_size: u32) -> Result<Vec<Bias>, ApiError> {
    let mut biases = Vec::new();
    for (token, BiasAmount(amount)) in &given.0 {
        let id = token.parse::<TokenId>().ok();
        let id = id.filter(|id| *id < vocab_size && id.to_string() == *token);
        let id = id.ok_or_else(|| {
            let param = format!("logit_bias.{}", clip(token));
            let rest = format!("must be a token id in 0..{}", vocab_size.saturating_sub(1));
            ApiError::field(ErrorCode::InvalidValue, param, rest)
        })?;
        if *amount != 0.0 {
            biases.push(Bias::add(id, *amount as f32));
        }
    }
    Ok(biases)
}
