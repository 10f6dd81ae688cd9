//! Commit rules: which of a lane's candidates are written in a step.

mod threshold;
mod top_k;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::candidate::Proposal;
use crate::config::CommitConfig;

pub use threshold::Threshold;
pub use top_k::TopK;

/// Decides which masks of a lane are committed in this step.
pub trait CommitRule: core::fmt::Debug + Send {
    /// Puts into `chosen` the indices of `masks` to commit, in any order, without duplicates.
    ///
    /// `masks` are the lane's open positions by offset, never empty; `chosen` comes empty. A
    /// rule that chooses nothing gets the most confident mask committed for it: every active
    /// lane makes progress in every step.
    fn select(&mut self, masks: &[Proposal], chosen: &mut Vec<usize>);
}

/// The rule `config` describes.
pub(crate) fn build(config: &CommitConfig) -> Box<dyn CommitRule> {
    match *config {
        CommitConfig::TopK { tokens_per_step } => Box::new(TopK::new(tokens_per_step)),
        CommitConfig::Threshold { threshold } => Box::new(Threshold::new(threshold)),
    }
}

/// Index of the most confident mask, the lower offset on ties.
pub(crate) fn most_confident(masks: &[Proposal]) -> usize {
    let mut best = 0;
    for (index, proposal) in masks.iter().enumerate().skip(1) {
        if proposal.candidate.probability > masks[best].candidate.probability {
            best = index;
        }
    }
    best
}
