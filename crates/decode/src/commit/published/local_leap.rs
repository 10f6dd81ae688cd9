//! Local leap (arXiv 2510.07081): a lower threshold holds near a confident token.

use crate::commit::prelude::*;

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
    build: |settings, _| Box::new(LocalLeap(settings.number(&THRESHOLD))),
};

/// Positions around an anchor in which the lower threshold holds.
const RADIUS: u32 = 4;
/// The lower threshold.
const RELAXED: f64 = 0.75;

/// Anchors A = {i : c_i >= τ}; S = A and every mask within four positions of an anchor with a
/// confidence of at least 0.75.
#[derive(Debug)]
struct LocalLeap(f64);

impl CommitRule for LocalLeap {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let confidence = |mask: &Proposal| mask.candidate.probability;
        let is_anchor = |mask: &Proposal| confidence(mask) >= self.0;
        let near = |mask: &Proposal| {
            let is_near = |other: &&Proposal| other.offset.abs_diff(mask.offset) <= RADIUS;
            masks.iter().filter(is_near).any(is_anchor)
        };
        let passes =
            |mask: &Proposal| is_anchor(mask) || (confidence(mask) >= RELAXED && near(mask));
        select_where(masks, passes, chosen);
    }
}
