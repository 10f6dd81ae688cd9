//! Threshold rule (Fast-dLLM, arXiv 2505.22618 §3.3): every mask with confidence `>= τ`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CommitInfo, CommitRule, Requirements, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::as_index;
use crate::lane::Lane;
use crate::settings::{SettingInfo, UNBOUNDED};

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.9).says("confidence that a commit needs");
/// k.
const MIN_TOKENS: SettingInfo = SettingInfo::integer("min_tokens_per_step", 1..=UNBOUNDED, 1)
    .says("fewest masks committed in a step, whatever their confidence");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "threshold",
    summary: "every mask whose confidence reaches the threshold",
    paper: "Fast-dLLM, arXiv 2505.22618; LLaDA2.0, arXiv 2512.15745",
    differs: "LLaDA2.0 compares with `>`, and commits one more in the first steps of a block whose \
              length is no multiple of its steps; at temperatures above 0 SDAR and Dream rank by the \
              probabilities after temperature and filters",
    settings: &[THRESHOLD, MIN_TOKENS],
    requires: Requirements::NONE,
    build: |of, _| {
        let rule = Threshold::new(of.number(&THRESHOLD));
        Box::new(rule.with_fewest(of.count(&MIN_TOKENS)))
    },
};

/// S = {i : c_i >= τ}, or the k most confident masks if S has fewer than k members. Fast-dLLM's k is 1:
/// the shared progress rule adds the most confident mask if S is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    threshold: f64,
    fewest: usize,
}

impl Threshold {
    /// `threshold` τ in `0.0..=1.0`; k is 1.
    pub fn new(threshold: f64) -> Self {
        let fewest = 1;
        Self { threshold, fewest }
    }

    /// With k, at least 1 (LLaDA2.0: positions of a block by its steps).
    #[must_use]
    pub fn with_fewest(self, fewest: u32) -> Self {
        let fewest = as_index(fewest.max(1));
        Self { fewest, ..self }
    }
}

impl CommitRule for Threshold {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let passes = |proposal: &Proposal| proposal.candidate.probability >= self.threshold;
        chosen.extend((0..masks.len()).filter(|index| passes(&masks[*index])));
        if self.fewest > 1 && chosen.len() < self.fewest {
            chosen.clear();
            by_confidence(masks, chosen);
            chosen.truncate(self.fewest);
        }
    }
}
