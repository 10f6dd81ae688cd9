//! Entropy-bound rule (EB-sampler): as many masks as a budget of uncertainty allows.

use alloc::vec::Vec;

use super::CommitRule;
use crate::candidate::Proposal;
use crate::lane::Lane;

/// In order of entropy the longest run whose entropies, without the last one's own, sum to at
/// most γ: what the tokens of one step may not know of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntropyBound {
    bound: f64,
}

impl EntropyBound {
    /// `bound` γ in nats, `>= 0`; 0 commits one uncertain token at a time.
    pub fn new(bound: f64) -> Self {
        Self { bound }
    }
}

impl CommitRule for EntropyBound {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let entropy = |index: usize| f64::from(masks[index].candidate.entropy);
        chosen.extend(0..masks.len());
        chosen.sort_unstable_by(|a, b| entropy(*a).total_cmp(&entropy(*b)).then(a.cmp(b)));
        let mut before = 0.0;
        let over = chosen.iter().position(|index| {
            let fits = before <= self.bound;
            before += entropy(*index);
            !fits
        });
        chosen.truncate(over.unwrap_or(masks.len()));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -f64::from(mask.candidate.entropy)
    }
}
