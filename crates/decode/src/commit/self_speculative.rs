//! Self-speculation (S2D2, arXiv 2603.25702): block-causal weights check their own guesses as the
//! autoregressive model that they are with blocks of one position.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCKS, CommitInfo, CommitRule, MOST_CHECKED, Requirements, Scene, confirmed};
use crate::candidate::Proposal;
use crate::coordinates::as_index;
use crate::describe::{AttentionKind, Company, Feature};
use crate::lane::Lane;
use crate::settings::SettingInfo;

/// τ.
const THRESHOLD: SettingInfo = SettingInfo::number("threshold", 0.0..=1.0, 0.85)
    .says("confidence that a commit without a check must exceed");
/// τ_span.
const MIN_SPAN: SettingInfo = SettingInfo::integer("min_span", 1..=64, 1)
    .says("fewest masks in the first run of masks that are checked");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "self_speculative",
    summary: "the first run of masks as the weights write it from left to right: one forward pass guesses \
              it, the next one checks the guesses; a short run by the threshold",
    paper: "S2D2, arXiv 2603.25702",
    differs: "a run is checked by its length alone, S2D2's scores are missing; a guess is right if it is the \
              token drawn from q, where S2D2 accepts it with probability min(1, q / p), also at \
              temperature 0, and draws from the rest of q otherwise; K/V of finished blocks are those of \
              the weights, never causal ones",
    settings: &[THRESHOLD, MIN_SPAN],
    requires: Requirements {
        schedules: BLOCKS,
        caches: Company::Only(&["exact"]),
        attention: &[AttentionKind::BlockCausal],
        // Biases that depend on the tokens before would have to count guesses.
        excludes: &[Feature::Grammar, Feature::Penalties],
        checks: true,
        idle: |_, length| length,
        ..Requirements::NONE
    },
    build: |of, _| {
        let (threshold, span) = (of.number(&THRESHOLD), of.count(&MIN_SPAN));
        Box::new(SelfSpeculative::new(threshold, span))
    },
};

/// Step by step: a forward of the block as the weights know it guesses the first run of masks, and
/// nothing is committed. The next forward computes q, the candidate of every guess given the tokens
/// before it alone. Guesses are committed from the left as long as they are the tokens drawn from q, then
/// the first token that is not. Where the first run is shorter than `min_span`, its masks and all others
/// are committed whose confidence exceeds the threshold, or the most confident one.
///
/// A position has the same noise in all steps, see [`CausalCheck`](super::CausalCheck).
#[derive(Clone, Debug, PartialEq)]
pub struct SelfSpeculative {
    threshold: f64,
    min_span: usize,
    guesses: Vec<Proposal>,
    /// Number of them that the forward checked.
    checked: usize,
}

impl SelfSpeculative {
    /// `threshold` τ in `0.0..=1.0`; `min_span` at least 1.
    pub fn new(threshold: f64, min_span: u32) -> Self {
        Self {
            threshold,
            min_span: as_index(min_span.max(1)),
            guesses: Vec::new(),
            checked: 0,
        }
    }
}

impl CommitRule for SelfSpeculative {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.checked = scene.checked.len();
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        if self.checked > 0 {
            let right = confirmed(masks, &self.guesses[..self.checked]);
            chosen.extend(0..(right + 1).min(self.checked));
            self.guesses.clear();
            return;
        }
        let run = first_run(masks);
        if run.len() >= self.min_span {
            self.guesses.extend_from_slice(run);
            return;
        }
        let passes = |index: &usize| masks[*index].candidate.probability > self.threshold;
        chosen.extend((0..masks.len()).filter(passes));
    }

    fn guesses_to_check(&self) -> &[Proposal] {
        &self.guesses
    }

    fn waits(&self) -> bool {
        !self.guesses.is_empty()
    }

    fn keeps_noise(&self) -> bool {
        true
    }
}

/// The masks from the first one on that lie on consecutive offsets, as far as a forward checks.
fn first_run(masks: &[Proposal]) -> &[Proposal] {
    let gap = masks
        .windows(2)
        .position(|two| two[0].offset.next() != two[1].offset);
    let run = gap.map_or(masks.len(), |last| last + 1);
    &masks[..run.min(as_index(MOST_CHECKED))]
}
