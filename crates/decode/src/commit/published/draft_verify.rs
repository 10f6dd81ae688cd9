//! Draft and verify (FreeDave, arXiv 2510.00294): the static top-k order in fewer forwards.

use crate::commit::prelude::*;
use crate::commit::{Branches, Guesses, Verification};

/// k.
const TOKENS_PER_STEP: SettingInfo =
    SettingInfo::integer("tokens_per_step", 1..=UNBOUNDED, 1).says("masks committed in a step");
/// D.
const DRAFT_STEPS: SettingInfo = SettingInfo::integer("draft_steps", 1..=32, 4)
    .says("number of canvases of a forward pass: the real one and guesses of the next steps");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "draft_verify",
    summary: "as `top_k`, in fewer forward passes: guesses of the next steps are verified together",
    paper: "FreeDave, arXiv 2510.00294",
    differs: "FreeDave++ and its eager mode, which guesses beyond the block, are missing",
    settings: &[TOKENS_PER_STEP, DRAFT_STEPS],
    requires: Requirements {
        schedules: BLOCKS,
        rows: Rows::Lane,
        attention: &[AttentionKind::Full, AttentionKind::BlockCausal],
        // A guess is verified against candidates that depend on the tokens alone.
        excludes: Feature::ALL,
        branches: |settings| settings.count(&DRAFT_STEPS).saturating_sub(1),
        ..Requirements::NONE
    },
    build: |settings, _| {
        Box::new(DraftVerify {
            tokens_per_step: as_index(settings.count(&TOKENS_PER_STEP)),
            draft_steps: as_index(settings.count(&DRAFT_STEPS)),
            guesses: Vec::new(),
            ends: Vec::with_capacity(as_index(settings.count(&DRAFT_STEPS))),
        })
    },
};

/// Commits the k most confident masks a step, like `top_k`, and guesses the
/// following steps: the next masks by the same confidences. The next forward runs over D nested
/// canvases, each with one more step guessed. While what it says of a canvas chooses exactly the
/// next guess, its word on the next canvas counts as a step of its own. So the tokens are those of
/// the static order, with fewer forwards of D times the rows.
///
/// Lossless as long as candidates depend on the tokens alone: temperature 0, no penalties.
#[derive(Debug)]
struct DraftVerify {
    tokens_per_step: usize,
    draft_steps: usize,
    guesses: Vec<Proposal>,
    /// Number of guesses after each of the next steps.
    ends: Vec<usize>,
}

impl CommitRule for DraftVerify {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        let next = self.tokens_per_step.min(chosen.len());
        let last = (self.tokens_per_step * self.draft_steps).min(chosen.len());
        self.guesses.clear();
        let guessed = chosen[next..last].iter();
        self.guesses.extend(guessed.map(|index| masks[*index]));
        chosen.truncate(next);
        let ends = (1..).map(|step| (step * self.tokens_per_step).min(last - next));
        self.ends.clear();
        let count = (last - next).div_ceil(self.tokens_per_step);
        self.ends.extend(ends.take(count));
    }

    fn guesses(&self) -> Guesses<'_> {
        Guesses::Branches(Branches {
            proposals: &self.guesses,
            ends: &self.ends,
            verification: Verification::Equal,
        })
    }
}
