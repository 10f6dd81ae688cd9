//! Top-k rule (LLaDA, arXiv 2502.09992 §2.4, low-confidence remasking): k tokens per step.

use alloc::vec::Vec;

use super::{CommitRule, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::as_index;
use crate::lane::Lane;

/// The k most confident masks, lower offsets first on ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopK {
    tokens_per_step: usize,
}

impl TopK {
    /// `tokens_per_step` k, at least 1.
    pub fn new(tokens_per_step: u32) -> Self {
        Self {
            tokens_per_step: as_index(tokens_per_step.max(1)),
        }
    }
}

impl CommitRule for TopK {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        chosen.truncate(self.tokens_per_step);
    }
}
