//! Entropy-bound rule (EB-sampler): as many masks as a budget of uncertainty allows.

use super::prelude::*;

/// γ.
pub(super) const ENTROPY_THRESHOLD: SettingInfo =
    SettingInfo::number("entropy_threshold", 0.0..=f64::MAX, 0.15)
        .says("largest sum, in nats, of the entropies of the committed masks before the last");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "entropy_bound",
    summary: "masks of rising entropy, while the entropies of those before sum to at most the threshold",
    paper: "EB-sampler",
    differs: "",
    settings: &[ENTROPY_THRESHOLD],
    requires: Requirements::NONE,
    build: |settings, _| Box::new(EntropyBound(settings.number(&ENTROPY_THRESHOLD))),
};

/// In order of entropy the longest run whose entropies, without the last one's own, sum to at
/// most γ: the uncertainty that the tokens of one step may have about each other.
#[derive(Debug)]
struct EntropyBound(f64);

/// Puts into `chosen` the longest run of masks in order of entropy whose entropies, without the last
/// one's own, sum to at most `bound`.
pub(super) fn within_bound(masks: &[Proposal], bound: f64, chosen: &mut Vec<usize>) {
    let entropy = |index: usize| f64::from(masks[index].candidate.entropy);
    chosen.extend(0..masks.len());
    chosen.sort_unstable_by(|a, b| entropy(*a).total_cmp(&entropy(*b)).then(a.cmp(b)));
    let mut before = 0.0;
    let over = chosen.iter().position(|index| {
        let fits = before <= bound;
        before += entropy(*index);
        !fits
    });
    chosen.truncate(over.unwrap_or(masks.len()));
}

impl CommitRule for EntropyBound {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        within_bound(masks, self.0, chosen);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -f64::from(mask.candidate.entropy)
    }
}
