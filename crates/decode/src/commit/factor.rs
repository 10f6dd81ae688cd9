//! Factor rule (Fast-dLLM, arXiv 2505.22618 §3.3): the more tokens at once, the surer each.

use alloc::vec::Vec;

use super::{CommitRule, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::as_count;
use crate::lane::Lane;

/// The n most confident masks, n the largest with c_(m) >= 1 - f / (m + 1) for all 2 <= m <= n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    factor: f64,
}

impl Factor {
    /// `factor` f, above 0; more commits more.
    pub fn new(factor: f64) -> Self {
        Self { factor }
    }
}

impl CommitRule for Factor {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        let fails = |rank: usize, index: &usize| {
            let least = 1.0 - self.factor / (f64::from(as_count(rank)) + 2.0);
            rank > 0 && masks[*index].candidate.probability < least
        };
        let mut ranks = chosen.iter().enumerate();
        if let Some(rank) = ranks.position(|(rank, index)| fails(rank, index)) {
            chosen.truncate(rank);
        }
    }
}
