//! Threshold rule (Fast-dLLM, arXiv 2505.22618 §3.3): every mask with confidence `>= τ`.

use super::prelude::*;

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.9).says("confidence that a commit needs");
/// k.
const MIN_TOKENS: SettingInfo = SettingInfo::integer("min_tokens_per_step", 1..=UNBOUNDED, 1)
    .says("smallest number of masks committed in a step, whatever their confidence");

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
    build: |settings, _| {
        Box::new(Threshold {
            threshold: settings.number(&THRESHOLD),
            fewest: as_index(settings.count(&MIN_TOKENS)),
        })
    },
};

/// S = {i : c_i >= τ}, or the k most confident masks if S has fewer than k members. Fast-dLLM's k is 1:
/// the shared progress rule adds the most confident mask if S is empty.
#[derive(Debug)]
struct Threshold {
    threshold: f64,
    fewest: usize,
}

impl CommitRule for Threshold {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        select_where(masks, |mask| mask.candidate.probability >= self.threshold, chosen);
        if self.fewest > 1 && chosen.len() < self.fewest {
            chosen.clear();
            by_confidence(masks, chosen);
            chosen.truncate(self.fewest);
        }
    }
}
