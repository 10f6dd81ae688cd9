//! Entropy rule (dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737): every mask whose
//! distribution is narrow enough.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements};
use crate::candidate::Proposal;
use crate::coordinates::Offset;
use crate::lane::Lane;
use crate::settings::SettingInfo;

/// θ.
const ENTROPY_THRESHOLD: SettingInfo =
    SettingInfo::number("entropy_threshold", 0.0..=f64::MAX, 0.5)
        .says("most entropy of a committed mask, in nats");
/// λ.
const POSITION_PENALTY: SettingInfo = SettingInfo::number("position_penalty", 0.0..=f64::MAX, 0.0)
    .says("nats added for each position after the lane's first mask");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "entropy",
    summary: "every mask whose entropy is at most the threshold",
    paper: "dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737",
    differs: "WeDLM commits below the threshold, not at it",
    settings: &[ENTROPY_THRESHOLD, POSITION_PENALTY],
    requires: Requirements::NONE,
    build: |of, _| {
        let rule = Entropy::new(of.number(&ENTROPY_THRESHOLD));
        Box::new(rule.with_penalty(of.number(&POSITION_PENALTY)))
    },
};

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
