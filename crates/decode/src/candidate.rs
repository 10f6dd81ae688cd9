//! The model's proposal for one position.

use crate::coordinates::Offset;

/// A token id of the model's vocabulary, in `0..vocab_size`.
pub type TokenId = u32;

/// The model's proposal for one scored position, reduced from its logits.
///
/// Probabilities are softmax values of the logits *after* the row's biases and *before* sampling
/// noise. They are `f64` because rules order near-certain tokens by differences far below the
/// resolution of `f32`: vanilla LLaDA commits the k most confident of many tokens whose
/// probability is within 1e-8 of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// At temperature 0 the most probable token (the lowest id on ties), else the sampled one.
    /// Never the mask token and never a banned token.
    pub token: TokenId,
    /// Probability of `token`, in `0.0..=1.0`.
    pub probability: f64,
    /// The most probable token other than `token`.
    pub runner_up: TokenId,
    /// Probability of `runner_up`, in `0.0..=1.0`.
    pub runner_up_probability: f64,
    /// Entropy of the whole distribution in nats, `>= 0`.
    pub entropy: f32,
    /// Largest minus second largest logit after biases, `>= 0`.
    pub gap: f32,
    /// Probability of the row's input token.
    pub present: f64,
}

impl Candidate {
    /// The lead of the token's probability over the runner-up's.
    pub fn margin(&self) -> f64 {
        self.probability - self.runner_up_probability
    }
}

/// A candidate for an offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The generated offset.
    pub offset: Offset,
    /// The proposal for it.
    pub candidate: Candidate,
}

impl Proposal {
    /// Returns true if both propose the same token for the same offset.
    pub(crate) fn says(&self, other: &Self) -> bool {
        self.offset == other.offset && self.candidate.token == other.candidate.token
    }
}
