//! Hierarchy rule (dInfer): breaks runs of masks in the middle, so that the rest of a run has
//! known neighbours on both sides.

use crate::commit::prelude::*;

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.9).says("confidence that a commit needs");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "hierarchy",
    summary: "every mask whose confidence reaches the threshold, and the most confident of every run of masks",
    paper: "dInfer",
    differs: "",
    settings: &[THRESHOLD],
    requires: Requirements::NONE,
    build: |settings, _| Box::new(Hierarchy(settings.number(&THRESHOLD))),
};

/// The confidence that the best of a run needs.
const LOW: f64 = 0.4;

/// S = {best of each maximal run of masks, if its c > 0.4} and {i : c_i > τ}.
#[derive(Debug)]
struct Hierarchy(f64);

impl CommitRule for Hierarchy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let confidence = |proposal: &Proposal| proposal.candidate.probability;
        let mut begin = 0;
        for run in masks.chunk_by(|left, right| left.offset.next() == right.offset) {
            let best = begin + best_by(run, confidence);
            let passes = |index: &usize| {
                let own = confidence(&masks[*index]);
                own > self.0 || (*index == best && own > LOW)
            };
            chosen.extend((begin..begin + run.len()).filter(passes));
            begin += run.len();
        }
    }
}
