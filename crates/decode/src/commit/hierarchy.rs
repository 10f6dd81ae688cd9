//! Hierarchy rule (dInfer): breaks runs of masks in the middle, so that the rest of a run has
//! known neighbours on both sides.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements, best_by};
use crate::candidate::Proposal;
use crate::lane::Lane;
use crate::settings::SettingInfo;

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
    build: |of, _| Box::new(Hierarchy::new(of.number(&THRESHOLD))),
};

/// The confidence that the best of a run needs.
const LOW: f64 = 0.4;

/// S = {best of each maximal run of masks, if its c > 0.4} and {i : c_i > τ}.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hierarchy {
    threshold: f64,
}

impl Hierarchy {
    /// `threshold` τ in `0.0..=1.0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for Hierarchy {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let confidence = |proposal: &Proposal| proposal.candidate.probability;
        let mut begin = 0;
        for run in masks.chunk_by(|left, right| left.offset.next() == right.offset) {
            let best = begin + best_by(run, confidence);
            let passes = |index: &usize| {
                let own = confidence(&masks[*index]);
                own > self.threshold || (*index == best && own > LOW)
            };
            chosen.extend((begin..begin + run.len()).filter(passes));
            begin += run.len();
        }
    }
}
