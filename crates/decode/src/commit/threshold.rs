//! Threshold rule (Fast-dLLM, arXiv 2505.22618 §3.3): every mask with confidence `>= τ`.

use alloc::vec::Vec;

use super::CommitRule;
use crate::candidate::Proposal;
use crate::lane::Lane;

/// S = {i : c_i >= τ}; the shared progress rule adds the most confident mask if S is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    threshold: f64,
}

impl Threshold {
    /// `threshold` τ in `0.0..=1.0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for Threshold {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let passes = |proposal: &Proposal| proposal.candidate.probability >= self.threshold;
        chosen.extend((0..masks.len()).filter(|index| passes(&masks[*index])));
    }
}
