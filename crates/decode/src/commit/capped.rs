//! Capped rule (CD4LM, arXiv 2601.02236, confidence-adaptive decoding): a threshold with a limit.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::as_index;
use crate::lane::Lane;
use crate::settings::{SettingInfo, UNBOUNDED};

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.95).says("confidence that a commit needs");
/// k.
const TOKENS_PER_STEP: SettingInfo = SettingInfo::integer("tokens_per_step", 1..=UNBOUNDED, 32)
    .says("most masks committed in a step");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "capped",
    summary: "every mask whose confidence reaches the threshold, at most `tokens_per_step` of them",
    paper: "CD4LM, arXiv 2601.02236",
    differs: "CD4LM also holds back ends of the sequence",
    settings: &[THRESHOLD, TOKENS_PER_STEP],
    requires: Requirements::NONE,
    build: |of, _| {
        let (threshold, most) = (of.number(&THRESHOLD), of.count(&TOKENS_PER_STEP));
        Box::new(Capped::new(threshold, most))
    },
};

/// The n most confident masks, n = clamp(|{i : c_i >= θ}|, 1, k).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capped {
    threshold: f64,
    most: usize,
}

impl Capped {
    /// `threshold` θ in `0.0..=1.0`; `most` k, at least 1.
    pub fn new(threshold: f64, most: u32) -> Self {
        Self {
            threshold,
            most: as_index(most.max(1)),
        }
    }
}

impl CommitRule for Capped {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let passes = |proposal: &&Proposal| proposal.candidate.probability >= self.threshold;
        let count = masks.iter().filter(passes).count();
        by_confidence(masks, chosen);
        chosen.truncate(count.clamp(1, self.most));
    }
}
