//! Entropy-bound rule (EB-sampler): as many masks as a budget of uncertainty allows.

use super::prelude::*;

/// γ.
pub(super) const ENTROPY_THRESHOLD: SettingInfo =
    SettingInfo::number("entropy_threshold", 0.0..=f64::MAX, 0.15)
        .says("largest sum, in nats, of the entropies of the committed masks but the largest one");
const ORDER: SettingInfo = SettingInfo::name("order", &["entropy", "confidence"], "entropy")
    .says("order of the masks: low entropy, or the probability of the best token (RND1)");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "entropy_bound",
    summary: "the surest masks, while their entropies without the largest one sum to at most the threshold",
    paper: "EB-sampler",
    differs: "",
    settings: &[ENTROPY_THRESHOLD, ORDER],
    requires: Requirements::NONE,
    build: |settings, _| {
        let bound = settings.number(&ENTROPY_THRESHOLD);
        Box::new(EntropyBound { bound, by_confidence: settings.name(&ORDER) == "confidence" })
    },
};

/// In order the longest run whose entropies, without the largest one, sum to at most γ: the uncertainty that
/// the tokens of one step may have about each other.
#[derive(Debug)]
struct EntropyBound {
    /// γ.
    bound: f64,
    by_confidence: bool,
}

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

/// The same run in order of the best token's probability.
fn within_bound_by_confidence(masks: &[Proposal], bound: f64, chosen: &mut Vec<usize>) {
    by_worth(masks, |mask| mask.candidate.probability, chosen);
    let (mut sum, mut largest) = (0.0, 0.0);
    let over = chosen.iter().position(|index| {
        let entropy = f64::from(masks[*index].candidate.entropy);
        (sum, largest) = (sum + entropy, entropy.max(largest));
        sum - largest > bound
    });
    chosen.truncate(over.unwrap_or(masks.len()));
}

impl CommitRule for EntropyBound {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        match self.by_confidence {
            true => within_bound_by_confidence(masks, self.bound, chosen),
            false => within_bound(masks, self.bound, chosen),
        }
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        match self.by_confidence {
            true => mask.candidate.probability,
            false => -f64::from(mask.candidate.entropy),
        }
    }
}
