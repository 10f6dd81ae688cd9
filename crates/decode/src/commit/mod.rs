//! Commit rules: which of a lane's candidates are written in a step.

mod block_check;
mod causal_check;
mod edit;
mod entropy;
mod entropy_bound;
mod info;
mod published;
mod renoise;
mod routers;
mod rule;
mod scheduled;
mod self_speculative;
mod threshold;
mod top_k;

use alloc::vec::Vec;

use crate::candidate::Proposal;

pub use info::{CommitConfig, CommitHost, CommitInfo, CommitInput, Requirements};
pub use rule::{
    Branches, Checks, CommitRule, Denoising, Guesses, Reads, Scene, Scope, Verdict, Verification,
};

/// Every commit rule, in the order in which requests fall back to them.
pub const COMMITS: &[&CommitInfo] = &[
    &threshold::INFO,
    &top_k::INFO,
    &scheduled::INFO,
    &published::factor::INFO,
    &entropy::INFO,
    &entropy_bound::INFO,
    &published::joint_bound::INFO,
    &published::margin::INFO,
    &published::capped::INFO,
    &published::credit::INFO,
    &published::local_leap::INFO,
    &published::hierarchy::INFO,
    &published::early_commit::INFO,
    &published::learned_filter::INFO,
    &published::draft_verify::INFO,
    &published::nested_drafts::INFO,
    &causal_check::INFO,
    &block_check::INFO,
    &self_speculative::INFO,
    &edit::INFO,
    &renoise::INFO,
];

/// The imports of a rule's file.
mod prelude {
    pub(super) use alloc::boxed::Box;
    pub(super) use alloc::vec::Vec;

    pub(super) use super::info::{BLOCKS, CommitInfo, Requirements};
    pub(super) use super::rule::{CommitRule, Scene};
    pub(super) use super::{best_by, by_confidence, by_worth, confirmed, select_where};
    pub(super) use crate::candidate::Proposal;
    pub(super) use crate::coordinates::{Offset, Span, as_count, as_index};
    pub(super) use crate::describe::{AttentionKind, Fault, Feature, Rows};
    pub(super) use crate::lane::Lane;
    pub(super) use crate::settings::{SettingInfo, Settings, UNBOUNDED};
}

/// Most guesses that a forward checks: one fewer than the single slots that a row can see beyond its
/// range (`step::Row::beyond`).
pub(crate) const MOST_CHECKED: u32 = 63;

/// Number of guesses from the left that equal the candidates of `masks`, which begin at the first
/// guess.
fn confirmed(masks: &[Proposal], guesses: &[Proposal]) -> usize {
    let pairs = masks.iter().zip(guesses);
    pairs.take_while(|(mask, guess)| mask.says(guess)).count()
}

/// Puts into `chosen` the index of every mask that passes.
fn select_where(masks: &[Proposal], passes: impl Fn(&Proposal) -> bool, chosen: &mut Vec<usize>) {
    chosen.extend((0..masks.len()).filter(|index| passes(&masks[*index])));
}

/// Index of the mask with the highest worth, the lower offset on ties; 0 if there is no mask.
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
    by_worth(masks, |mask| mask.candidate.probability, chosen);
}

/// Puts all masks into `chosen`, the highest worth first, lower offsets first on ties.
fn by_worth(masks: &[Proposal], worth: impl Fn(&Proposal) -> f64, chosen: &mut Vec<usize>) {
    let worth = |index: &usize| worth(&masks[*index]);
    chosen.extend(0..masks.len());
    chosen.sort_unstable_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.cmp(b)));
}
