//! Entropy rule (dParallel, arXiv 2509.26488): every mask whose distribution is narrow enough.

use alloc::vec::Vec;

use super::CommitRule;
use crate::candidate::Proposal;
use crate::lane::Lane;

/// S = {i : H_i <= θ}; the shared progress rule adds the lowest entropy if S is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    threshold: f64,
}

impl Entropy {
    /// `threshold` θ in nats, `>= 0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for Entropy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let entropy = |proposal: &Proposal| f64::from(proposal.candidate.entropy);
        let passes = |index: &usize| entropy(&masks[*index]) <= self.threshold;
        chosen.extend((0..masks.len()).filter(passes));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -f64::from(mask.candidate.entropy)
    }
}
