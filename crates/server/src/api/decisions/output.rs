//! Answers of `/v1/decisions`, and the numbers of answers.

use schemars::JsonSchema;
use serde::Serialize;

use super::value::OptionValue;
use crate::pipeline::decide::{Manner, ReadSettings};
use crate::pipeline::usage::Usage;

/// The answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Decision {
    /// One per question, in order.
    pub answers: Vec<Answer>,
    /// The served model's name.
    pub model: String,
    pub usage: DecisionUsage,
}

/// The answer to one question.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "DecisionAnswer")]
pub enum Answer {
    Predicate {
        name: Option<String>,
        /// Probability that the statement is true.
        probability: f64,
    },
    Choice {
        name: Option<String>,
        /// The most probable option; the first one on ties.
        choice: OptionValue,
        /// 0: all options are alike; 1: the choice is certain.
        confidence: f64,
        probabilities: Vec<ChoiceProbability>,
    },
    Score {
        name: Option<String>,
        /// The expected index of the level.
        score: f64,
        /// 0: all levels are alike; 1: one is certain.
        confidence: f64,
        probabilities: Vec<LevelProbability>,
    },
}

/// The probability of an option.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChoiceProbability {
    pub value: OptionValue,
    pub probability: f64,
}

/// The probability of a level.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LevelProbability {
    /// Its index, from 0.
    pub value: usize,
    pub label: String,
    pub probability: f64,
}

/// The cost.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DecisionUsage {
    /// Given tokens of all canvases: input, questions and the text around the answers.
    input_tokens: u64,
    input_tokens_details: InputDetails,
    /// 0: nothing is generated.
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
    diffusion: ReadUsage,
}

#[derive(Debug, Serialize, JsonSchema)]
struct InputDetails {
    /// Tokens with cached K/V.
    cached_tokens: u64,
    /// 0: writing is free.
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OutputDetails {
    reasoning_tokens: u64,
}

/// `usage.diffusion` of a decision.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReadUsage {
    /// Schedule, commit rule and cache policy.
    decoder: String,
    /// The manner of reading.
    read: &'static str,
    /// Forward passes, summed over the canvases.
    forwards: u64,
    /// Computed positions, summed over the canvases.
    rows: u64,
    /// Orders of the options.
    orders: u32,
    /// The probability of the labels of each question among all tokens, before it was divided by it.
    option_mass: Vec<f64>,
    /// The seed of the noise.
    seed: i64,
}

impl ReadUsage {
    /// The cost of a request with these sums.
    pub fn new(manner: Manner, settings: &ReadSettings, sums: &Usage, masses: Vec<f64>) -> Self {
        let cost = sums.diffusion.clone().unwrap_or_default();
        Self {
            decoder: cost.decoder,
            read: manner.name(),
            forwards: cost.forwards.forwards,
            rows: cost.forwards.positions,
            orders: settings.orders,
            option_mass: masses,
            seed: settings.seed,
        }
    }
}

impl DecisionUsage {
    /// The usage of a request.
    pub fn new(sums: &Usage, diffusion: ReadUsage) -> Self {
        let details = sums.prompt_tokens_details.as_ref();
        Self {
            input_tokens: sums.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: details.map_or(0, |details| details.cached_tokens),
                cache_write_tokens: 0,
            },
            output_tokens: 0,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: sums.prompt_tokens,
            diffusion,
        }
    }
}

/// The index of the largest probability, the first one on ties.
pub fn best(probabilities: &[f64]) -> usize {
    let mut best = 0;
    for (index, probability) in probabilities.iter().enumerate() {
        if *probability > probabilities[best] {
            best = index;
        }
    }
    best
}

/// The lead of the largest of k probabilities over 1/k, as a share of the largest lead possible.
pub fn confidence(probabilities: &[f64]) -> f64 {
    let even = 1.0 / probabilities.len() as f64;
    ((probabilities[best(probabilities)] - even) / (1.0 - even)).clamp(0.0, 1.0)
}

/// The expected index.
pub fn expected(probabilities: &[f64]) -> f64 {
    let weighted = (0u32..).zip(probabilities);
    weighted.map(|(index, probability)| f64::from(index) * probability).sum()
}
