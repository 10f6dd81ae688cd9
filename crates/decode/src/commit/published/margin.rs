//! Margin rule: every mask whose best token leads the runner-up by enough (Dream's `topk_margin`
//! order, with a threshold in place of k).

use crate::commit::prelude::*;

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
    build: |settings, _| Box::new(Margin(settings.number(&MARGIN_THRESHOLD))),
};

/// S = {i : p_i(1st) - p_i(2nd) >= τ}; the shared progress rule adds the largest lead if S is
/// empty.
#[derive(Debug)]
struct Margin(f64);

impl CommitRule for Margin {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        select_where(masks, |mask| self.worth(mask) >= self.0, chosen);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        mask.candidate.margin()
    }
}
