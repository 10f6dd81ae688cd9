//! Entropy rule (dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737): every mask whose
//! distribution is narrow enough.

use alloc::vec::Vec;

use super::CommitRule;
use crate::candidate::Proposal;
use crate::coordinates::Offset;
use crate::lane::Lane;

/// S = {i : H_i + λ (i - f) <= θ}, f the lane's first mask; the shared progress rule adds the
/// lowest of these sums if S is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    threshold: f64,
    penalty: f64,
}

impl Entropy {
    /// `threshold` θ in nats, `>= 0`; no penalty.
    pub fn new(threshold: f64) -> Self {
        let penalty = 0.0;
        Self { threshold, penalty }
    }

    /// With λ in nats per position, `>= 0`: what is near the first mask goes first.
    #[must_use]
    pub fn with_penalty(self, penalty: f64) -> Self {
        Self { penalty, ..self }
    }

    fn cost(&self, mask: &Proposal, first: Offset) -> f64 {
        f64::from(mask.candidate.entropy)
            + self.penalty * f64::from(mask.offset.distance_from(first))
    }
}

impl CommitRule for Entropy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let first = masks.first().map_or(Offset::ZERO, |mask| mask.offset);
        let passes = |index: &usize| self.cost(&masks[*index], first) <= self.threshold;
        chosen.extend((0..masks.len()).filter(passes));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -self.cost(mask, Offset::ZERO)
    }
}
