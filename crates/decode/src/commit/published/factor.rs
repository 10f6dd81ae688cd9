//! Factor rule (Fast-dLLM, arXiv 2505.22618 §3.3): the more tokens a step commits, the more confident each must be.

use crate::commit::prelude::*;

/// f.
const FACTOR: SettingInfo = SettingInfo::number("factor", f64::MIN_POSITIVE..=f64::MAX, 1.0)
    .says("factor f of the bound; a larger factor commits more tokens");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "factor",
    summary: "the n most confident masks with c_n >= 1 - factor / (n + 1)",
    paper: "Fast-dLLM, arXiv 2505.22618",
    differs: "",
    settings: &[FACTOR],
    requires: Requirements::NONE,
    build: |settings, _| Box::new(Factor(settings.number(&FACTOR))),
};

/// The n most confident masks, n the largest with c_(m) >= 1 - f / (m + 1) for all 2 <= m <= n. The
/// last mask of a lane is committed with all others that pass, as the published code does.
#[derive(Debug)]
struct Factor(f64);

impl CommitRule for Factor {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        let fails = |rank: usize, index: &usize| {
            let least = 1.0 - self.0 / (f64::from(as_count(rank)) + 2.0);
            rank > 0 && masks[*index].candidate.probability < least
        };
        let others = chosen.len().saturating_sub(1);
        let mut ranks = chosen[..others].iter().enumerate();
        if let Some(rank) = ranks.position(|(rank, index)| fails(rank, index)) {
            chosen.truncate(rank);
        }
    }
}
