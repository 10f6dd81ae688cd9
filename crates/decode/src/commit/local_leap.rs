//! Local leap (arXiv 2510.07081): a lower threshold holds near a confident token.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements};
use crate::candidate::Proposal;
use crate::lane::Lane;
use crate::settings::SettingInfo;

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.9).says("confidence that a commit needs");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "local_leap",
    summary: "every mask whose confidence reaches the threshold; 0.75 suffices within four positions of such a mask",
    paper: "LocalLeap, arXiv 2510.07081",
    differs: "",
    settings: &[THRESHOLD],
    requires: Requirements::NONE,
    build: |of, _| Box::new(LocalLeap::new(of.number(&THRESHOLD))),
};

/// Positions around an anchor in which the lower threshold holds.
const RADIUS: u32 = 4;
/// The lower threshold.
const RELAXED: f64 = 0.75;

/// Anchors A = {i : c_i >= τ}; S = A and every mask within four positions of an anchor with a
/// confidence of at least 0.75.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalLeap {
    threshold: f64,
}

impl LocalLeap {
    /// `threshold` τ of anchors, in `0.0..=1.0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for LocalLeap {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let confidence = |index: usize| masks[index].candidate.probability;
        let is_anchor = |index: usize| confidence(index) >= self.threshold;
        let near = |index: usize| {
            let offset = masks[index].offset;
            let others = masks.iter().enumerate();
            others
                .filter(|(_, other)| other.offset.abs_diff(offset) <= RADIUS)
                .any(|(other, _)| is_anchor(other))
        };
        let passes =
            |index: &usize| is_anchor(*index) || (confidence(*index) >= RELAXED && near(*index));
        chosen.extend((0..masks.len()).filter(passes));
    }
}
