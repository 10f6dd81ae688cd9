//! Top-k rule (LLaDA, arXiv 2502.09992 §2.4, low-confidence remasking): k tokens per step.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::as_index;
use crate::lane::Lane;
use crate::settings::{SettingInfo, UNBOUNDED};

/// k.
const TOKENS_PER_STEP: SettingInfo =
    SettingInfo::integer("tokens_per_step", 1..=UNBOUNDED, 1).says("masks committed in a step");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "top_k",
    summary: "the `tokens_per_step` most confident masks",
    paper: "LLaDA, arXiv 2502.09992",
    differs: "at temperatures above 0 SDAR ranks by the probabilities after temperature and filters",
    settings: &[TOKENS_PER_STEP],
    requires: Requirements::NONE,
    build: |of, _| Box::new(TopK::new(of.count(&TOKENS_PER_STEP))),
};

/// The k most confident masks, lower offsets first on ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopK {
    tokens_per_step: usize,
}

impl TopK {
    /// `tokens_per_step` k, at least 1.
    pub fn new(tokens_per_step: u32) -> Self {
        Self {
            tokens_per_step: as_index(tokens_per_step.max(1)),
        }
    }
}

impl CommitRule for TopK {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        chosen.truncate(self.tokens_per_step);
    }
}
