//! Top-k rule (LLaDA, arXiv 2502.09992 §2.4, low-confidence remasking): k tokens per step.

use super::prelude::*;

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
    build: |settings, _| Box::new(TopK(as_index(settings.count(&TOKENS_PER_STEP)))),
};

/// The k most confident masks, lower offsets first on ties.
#[derive(Debug)]
struct TopK(usize);

impl CommitRule for TopK {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        chosen.truncate(self.0);
    }
}
