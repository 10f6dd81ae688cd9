//! Commit rules: which of a lane's candidates are written in a step.

mod capped;
mod credit;
mod entropy;
mod entropy_bound;
mod factor;
mod hierarchy;
mod local_leap;
mod margin;
mod threshold;
mod top_k;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::candidate::Proposal;
use crate::config::CommitConfig;
use crate::lane::Lane;

pub use capped::Capped;
pub use credit::Credit;
pub use entropy::Entropy;
pub use entropy_bound::EntropyBound;
pub use factor::Factor;
pub use hierarchy::Hierarchy;
pub use local_leap::LocalLeap;
pub use margin::Margin;
pub use threshold::Threshold;
pub use top_k::TopK;

/// Decides which masks of a lane are committed in this step.
pub trait CommitRule: core::fmt::Debug + Send {
    /// Puts into `chosen` the indices of `masks` to commit, in any order, without duplicates.
    ///
    /// `masks` are the open positions of `lane` by offset, never empty; `chosen` comes empty. A
    /// rule may put other tokens and confidences into `masks`: what it chooses is committed as it
    /// stands there. A rule that chooses nothing gets the mask of the highest [`Self::worth`]
    /// committed for it: every active lane makes progress in every step.
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>);

    /// How much the rule thinks of a mask: where a step must commit one it is the worthiest, the
    /// lower offset on ties.
    fn worth(&self, mask: &Proposal) -> f64 {
        mask.candidate.probability
    }
}

/// The rule `config` describes.
pub(crate) fn build(config: &CommitConfig) -> Box<dyn CommitRule> {
    match *config {
        CommitConfig::TopK { tokens_per_step } => Box::new(TopK::new(tokens_per_step)),
        CommitConfig::Threshold { threshold } => Box::new(Threshold::new(threshold)),
        CommitConfig::Factor { factor } => Box::new(Factor::new(factor)),
        CommitConfig::Entropy { threshold } => Box::new(Entropy::new(threshold)),
        CommitConfig::EntropyBound { bound } => Box::new(EntropyBound::new(bound)),
        CommitConfig::Margin { threshold } => Box::new(Margin::new(threshold)),
        CommitConfig::Capped { threshold, most } => Box::new(Capped::new(threshold, most)),
        CommitConfig::LocalLeap { threshold } => Box::new(LocalLeap::new(threshold)),
        CommitConfig::Hierarchy { threshold } => Box::new(Hierarchy::new(threshold)),
        CommitConfig::Credit { threshold } => Box::new(Credit::new(threshold)),
    }
}

/// Index of the mask with the highest worth, the lower offset on ties; 0 of none.
pub(crate) fn best_by(masks: &[Proposal], worth: impl Fn(&Proposal) -> f64) -> usize {
    let mut best = 0;
    for (index, proposal) in masks.iter().enumerate().skip(1) {
        if worth(proposal) > worth(&masks[best]) {
            best = index;
        }
    }
    best
}

/// Puts all masks into `chosen`, most confident first, lower offsets first on ties.
fn by_confidence(masks: &[Proposal], chosen: &mut Vec<usize>) {
    let confidence = |index: &usize| masks[*index].candidate.probability;
    chosen.extend(0..masks.len());
    chosen.sort_unstable_by(|a, b| confidence(b).total_cmp(&confidence(a)).then(a.cmp(b)));
}
