//! What the model proposes for one position.

use crate::coordinates::Offset;

/// A token id of the model's vocabulary, in `0..vocab_size`.
pub type TokenId = u32;

/// The model's proposal for one scored position, reduced from its logits.
///
/// Probabilities are softmax values of the logits *after* the row's biases and
/// before any sampling noise; they are `f64` because rules order near-certain
/// tokens by differences far below `f32` resolution (vanilla LLaDA commits the
/// k most confident of many tokens whose probability is within 1e-8 of one).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The argmax at temperature 0 (lowest id on ties), the sampled token otherwise.
    /// Never the mask token, never a banned one.
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
    /// Probability of the token that the row carried as its input (edit rules compare it).
    pub present: f64,
}

/// A candidate and the offset that it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// Where.
    pub offset: Offset,
    /// What the model proposes there.
    pub candidate: Candidate,
}
