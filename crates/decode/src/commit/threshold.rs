//! Threshold rule (Fast-dLLM, arXiv 2505.22618 §3.3): every mask with confidence `>= τ`.

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
    name: "threshold",
    summary: "every mask whose confidence reaches the threshold",
    paper: "Fast-dLLM, arXiv 2505.22618",
    differs: "",
    settings: &[THRESHOLD],
    requires: Requirements::NONE,
    build: |of, _| Box::new(Threshold::new(of.number(&THRESHOLD))),
};

/// S = {i : c_i >= τ}; the shared progress rule adds the most confident mask if S is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    threshold: f64,
}

impl Threshold {
    /// `threshold` τ in `0.0..=1.0`.
    pub fn new(threshold: f64) -> Self {
        Self { threshold }
    }
}

impl CommitRule for Threshold {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let passes = |proposal: &Proposal| proposal.candidate.probability >= self.threshold;
        chosen.extend((0..masks.len()).filter(|index| passes(&masks[*index])));
    }
}
