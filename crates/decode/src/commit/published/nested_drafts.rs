//! Verified nested drafts over an entropy bound: a ladder of bold guesses, each step of which the
//! bound must sanction on the canvas of the step before.

use super::joint_bound;
use crate::commit::entropy_bound::{ENTROPY_THRESHOLD, within_bound};
use crate::commit::prelude::*;
use crate::commit::{Branches, Guesses, Reads, Scope, Verification};
use crate::describe::NameFilter;

/// Levels of the ladder.
const DRAFT_LEVELS: SettingInfo = SettingInfo::integer("draft_levels", 1..=16, 6).says(
    "number of guessed canvases of a forward pass beside the real one, each with more guesses than the one before",
);
/// The confidence of the boldest level.
const DRAFT_FLOOR: SettingInfo = SettingInfo::number("draft_floor", 0.0..=1.0, 0.3)
    .says("smallest confidence of a guess on the last guessed canvas; on the first one it is 0.95");

/// The confidence from which on the first canvas guesses.
const CEILING: f64 = 0.95;

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "nested_drafts",
    summary: "as `entropy_bound`, in fewer forward passes: nested guesses by falling confidence, each \
              committed if the bound would commit it on the canvas of the guesses before",
    paper: "PSD, arXiv 2605.15609; FreeDave++, arXiv 2510.00294; EB-sampler, arXiv 2505.24857",
    differs: "",
    settings: &[ENTROPY_THRESHOLD, DRAFT_LEVELS, DRAFT_FLOOR],
    requires: Requirements {
        schedules: NameFilter::Only(&["block_wise", "asynclane"]),
        suits: |_, host| joint_bound::forbid_lane_budget("nested_drafts", host.schedule),
        attention: &[AttentionKind::Full, AttentionKind::BlockCausal],
        // A guess is verified against candidates that depend on the tokens alone.
        excludes: Feature::ALL,
        branches: |settings| settings.count(&DRAFT_LEVELS),
        ..Requirements::NONE
    },
    build: |settings, _| {
        let levels = settings.count(&DRAFT_LEVELS);
        Box::new(NestedDrafts {
            bound: settings.number(&ENTROPY_THRESHOLD),
            levels,
            floor: settings.number(&DRAFT_FLOOR).min(CEILING),
            guesses: Vec::new(),
            ends: Vec::with_capacity(as_index(levels)),
            stops: Vec::new(),
            open: Vec::new(),
        })
    },
};

/// Commits the masks that `joint_bound` commits, S₀, and guesses S₁ ⊂ S₂ ⊂ ...: level
/// j guesses every mask whose confidence reaches t_j, where t falls evenly from 0.95 to the floor. The
/// next forward runs over the canvases with each of them. From the real canvas on, the boldest level
/// is committed whose guesses the bound chooses, with the same tokens, among the candidates of the
/// last level reached; and so on from there. The candidates of the last level reached decide about
/// the step after.
///
/// A guess counts only if it is sanctioned given the guesses before it: the joint choice is tested, not
/// the marginals.
#[derive(Debug)]
struct NestedDrafts {
    bound: f64,
    levels: u32,
    floor: f64,
    guesses: Vec<Proposal>,
    /// Number of guesses of each level.
    ends: Vec<usize>,
    /// Offsets whose candidate is a stop token: a guess would see what it cuts off.
    stops: Vec<Offset>,
    /// Scratch: the masks that may be guessed, most confident first.
    open: Vec<usize>,
}

impl NestedDrafts {
    /// t of a level, counted from 0.
    fn threshold(&self, level: u32) -> f64 {
        let last = f64::from(self.levels - 1).max(1.0);
        CEILING - (CEILING - self.floor) * f64::from(level) / last
    }

    /// Guesses among the masks that are not `chosen`, most confident first.
    fn guess(&mut self, masks: &[Proposal], chosen: &[usize]) {
        self.open.clear();
        by_confidence(masks, &mut self.open);
        let stops = &self.stops;
        self.open.retain(|index| !chosen.contains(index) && !stops.contains(&masks[*index].offset));
        for level in 0..self.levels {
            let threshold = self.threshold(level);
            let sure = |index: &usize| masks[*index].candidate.probability >= threshold;
            let end = self.open.partition_point(sure);
            if end > self.guesses.len() {
                let fresh = &self.open[self.guesses.len()..end];
                self.guesses.extend(fresh.iter().map(|index| masks[*index]));
                self.ends.push(end);
            }
        }
    }
}

impl CommitRule for NestedDrafts {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.stops.clear();
        let stops = scene.proposals.iter();
        let stops = stops.filter(|proposal| scene.canvas.is_stop(proposal.candidate.token));
        self.stops.extend(stops.map(|proposal| proposal.offset));
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        within_bound(masks, self.bound, chosen);
        self.guesses.clear();
        self.ends.clear();
        self.guess(masks, chosen);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -f64::from(mask.candidate.entropy)
    }

    fn reads(&self) -> Reads {
        Reads { scope: Scope::Sequence, ..Reads::default() }
    }

    fn guesses(&self) -> Guesses<'_> {
        Guesses::Branches(Branches {
            proposals: &self.guesses,
            ends: &self.ends,
            verification: Verification::Sanctioned,
        })
    }
}
