//! Margin rule: every mask whose best token leads the runner-up by enough (Dream's `topk_margin`
//! order, with a threshold in place of k).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements};
use crate::candidate::Proposal;
use crate::lane::Lane;
use crate::settings::SettingInfo;

/// τ.
const MARGIN_THRESHOLD: SettingInfo = SettingInfo::number("margin_threshold", 0.0..=1.0, 0.9)
    .says("lead of the best token over the second that a commit needs");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "margin",
    summary: "every mask whose best token leads the second by the threshold",
    paper: "Dream's order, with a threshold",
    differs: "",
    settings: &[MARGIN_THRESHOLD],
    requires: Requirements::NONE,
    build: |of, _| Box::new(Margin::new(of.number(&MARGIN_THRESHOLD))),
};

/// S = {i : p_i(1st) - p_i(2nd) >= τ}; the shared progress rule adds the largest lead if S is
/// empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    threshold: f64,
}

impl Margin {
    /// `threshold` τ in `0.0..=1.0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for Margin {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let passes = |index: &usize| self.worth(&masks[*index]) >= self.threshold;
        chosen.extend((0..masks.len()).filter(passes));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        mask.candidate.probability - mask.candidate.runner_up_probability
    }
}
