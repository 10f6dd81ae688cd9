//! Top-k rule (LLaDA, arXiv 2502.09992 §2.4, low-confidence remasking): k tokens per step.

use alloc::vec::Vec;

use super::CommitRule;
use crate::candidate::Proposal;

/// The k most confident masks, lower offsets first on ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopK {
    tokens_per_step: usize,
}

impl TopK {
    /// `tokens_per_step` k, at least 1.
    pub fn new(tokens_per_step: u32) -> Self {
        Self {
            tokens_per_step: tokens_per_step.max(1) as usize,
        }
    }
}

impl CommitRule for TopK {
    fn select(&mut self, masks: &[Proposal], chosen: &mut Vec<usize>) {
        chosen.extend(0..masks.len());
        if masks.len() > self.tokens_per_step {
            let confidence = |index: &usize| masks[*index].candidate.probability;
            chosen.sort_unstable_by(|a, b| {
                confidence(b)
                    .total_cmp(&confidence(a))
                    .then_with(|| a.cmp(b))
            });
            chosen.truncate(self.tokens_per_step);
        }
    }
}
