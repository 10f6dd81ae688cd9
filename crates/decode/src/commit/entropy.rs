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
const BELOW: SettingInfo = SettingInfo::flag("below", false)
    .says("whether the sum must lie below the threshold, and not at it");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "entropy",
    summary: "every mask whose entropy is at most the threshold",
    paper: "dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737",
    differs: "",
    settings: &[ENTROPY_THRESHOLD, POSITION_PENALTY, BELOW],
    requires: Requirements::NONE,
    build: |of, _| {
        let rule = Entropy::new(of.number(&ENTROPY_THRESHOLD));
        let rule = rule.with_penalty(of.number(&POSITION_PENALTY));
        Box::new(match of.flag(&BELOW) {
            true => rule.strictly_below(),
            false => rule,
        })
    },
};

/// S = {i : H_i + λ (i - f) <= θ}, f the lane's first mask; the shared progress rule adds the
/// lowest of these sums if S is empty. WeDLM compares with `<`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    threshold: f64,
    penalty: f64,
    below: bool,
}

impl Entropy {
    /// `threshold` θ in nats, `>= 0`; no penalty.
    pub fn new(threshold: f64) -> Self {
        Self {
            threshold,
            penalty: 0.0,
            below: false,
        }
    }

    /// With λ in nats per position, `>= 0`: what is near the first mask goes first.
    #[must_use]
    pub fn with_penalty(self, penalty: f64) -> Self {
        Self { penalty, ..self }
    }

    /// Sums at the threshold do not pass.
    #[must_use]
    pub fn strictly_below(self) -> Self {
        let below = true;
        Self { below, ..self }
    }

    fn cost(&self, mask: &Proposal, first: Offset) -> f64 {
        f64::from(mask.candidate.entropy)
            + self.penalty * f64::from(mask.offset.distance_from(first))
    }
}

impl CommitRule for Entropy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let first = masks.first().map_or(Offset::ZERO, |mask| mask.offset);
        let passes = |index: &usize| {
            let cost = self.cost(&masks[*index], first);
            cost < self.threshold || (cost == self.threshold && !self.below)
        };
        chosen.extend((0..masks.len()).filter(passes));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -self.cost(mask, Offset::ZERO)
    }
}
