//! Entropy rule (dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737): every mask whose
//! distribution is narrow enough.

use super::prelude::*;

/// θ.
const ENTROPY_THRESHOLD: SettingInfo =
    SettingInfo::number("entropy_threshold", 0.0..=f64::MAX, 0.5)
        .says("largest entropy of a committed mask, in nats");
/// λ.
const POSITION_PENALTY: SettingInfo = SettingInfo::number("position_penalty", 0.0..=f64::MAX, 0.0)
    .says("nats added to the entropy for each position after the lane's first mask");
const BELOW: SettingInfo = SettingInfo::flag("below", false)
    .says("the sum must lie below the threshold; otherwise it may also equal the threshold");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "entropy",
    summary: "every mask whose entropy is at most the threshold",
    paper: "dParallel, arXiv 2509.26488; WeDLM, arXiv 2512.22737",
    differs: "",
    settings: &[ENTROPY_THRESHOLD, POSITION_PENALTY, BELOW],
    requires: Requirements::NONE,
    build: |settings, _| {
        Box::new(Entropy {
            threshold: settings.number(&ENTROPY_THRESHOLD),
            penalty: settings.number(&POSITION_PENALTY),
            below: settings.flag(&BELOW),
        })
    },
};

/// S = {i : H_i + λ (i - f) <= θ}, f the lane's first mask; the shared progress rule adds the
/// lowest of these sums if S is empty. WeDLM compares with `<`.
#[derive(Debug)]
struct Entropy {
    threshold: f64,
    penalty: f64,
    /// Sums at the threshold do not pass.
    below: bool,
}

impl Entropy {
    fn cost(&self, mask: &Proposal, first: Offset) -> f64 {
        f64::from(mask.candidate.entropy)
            + self.penalty * f64::from(mask.offset.distance_from(first))
    }
}

impl CommitRule for Entropy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let first = masks.first().map_or(Offset::ZERO, |mask| mask.offset);
        let passes = |mask: &Proposal| {
            let cost = self.cost(mask, first);
            cost < self.threshold || (cost == self.threshold && !self.below)
        };
        select_where(masks, passes, chosen);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -self.cost(mask, Offset::ZERO)
    }
}
