//! Self-speculation (S2D2, arXiv 2603.25702): block-causal weights check their own guesses as the
//! autoregressive model that they are with blocks of one position.

use super::prelude::*;
use super::routers::{self, Router, Sight};
use super::{Checks, Guesses, MOST_CHECKED};

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "self_speculative",
    summary: "the first run of masks as the weights write it from left to right: one forward pass guesses \
              it, the next one checks the guesses; a run that the router leaves unchecked by the threshold",
    paper: "S2D2, arXiv 2603.25702",
    differs: "a guess is right if it is the token drawn from q, where S2D2 accepts it with probability min(1, q / p), also at \
              temperature 0, and draws from the rest of q otherwise; K/V of finished blocks are those of \
              the weights, never causal ones",
    settings: routers::SETTINGS,
    requires: Requirements {
        schedules: BLOCKS,
        attention: &[AttentionKind::BlockCausal],
        // Biases that depend on the tokens before would have to count guesses.
        excludes: &[Feature::Grammar, Feature::Penalties],
        checks: true,
        idle: |_, length| length,
        suits: |settings, _| routers::suits(settings),
        ..Requirements::NONE
    },
    build: |settings, input| {
        Box::new(SelfSpeculative {
            block_length: input.block_length,
            threshold: settings.number(&routers::THRESHOLD),
            router: Router::new(settings),
            guesses: Vec::new(),
            checked: 0,
        })
    },
};

/// Step by step: a forward of the block as the weights know it guesses the first run of masks, and
/// nothing is committed. The next forward computes q, the candidate of every guess given the tokens
/// before it alone. Guesses are committed from the left as long as they are the tokens drawn from q, then
/// the first token that is not. Where the router leaves a run unchecked, its masks and all others are
/// committed whose confidence exceeds the threshold, or the most confident one.
///
/// A position has the same noise in all steps, as for `causal_check`.
#[derive(Debug)]
struct SelfSpeculative {
    block_length: Option<u32>,
    threshold: f64,
    router: Router,
    guesses: Vec<Proposal>,
    /// Number of guesses that the forward checked.
    checked: usize,
}

impl CommitRule for SelfSpeculative {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.checked = scene.checked.len();
    }

    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        if self.checked > 0 {
            let right = confirmed(masks, &self.guesses[..self.checked]);
            chosen.extend(0..(right + 1).min(self.checked));
            self.guesses.clear();
            self.router.rewarded(chosen.len());
            return;
        }
        select_where(masks, |mask| mask.candidate.probability > self.threshold, chosen);
        let run = first_run(masks);
        let sight = Sight {
            run,
            sure: chosen.len(),
            committed: lane.len.saturating_sub(as_count(masks.len())),
            // The first block may begin with a part of the prompt.
            length: self.block_length.unwrap_or(lane.len),
        };
        if self.router.checks(&sight) {
            chosen.clear();
            self.guesses.extend_from_slice(run);
        } else {
            // Where nothing passes, the most confident mask is committed.
            self.router.rewarded(chosen.len().max(1));
        }
    }

    fn guesses(&self) -> Guesses<'_> {
        Guesses::Checks(Checks {
            guesses: &self.guesses,
            ahead: false,
            waits: !self.guesses.is_empty(),
        })
    }
}

/// The masks from the first one on that lie on consecutive offsets, up to the most that a forward
/// checks.
fn first_run(masks: &[Proposal]) -> &[Proposal] {
    let gap = masks.windows(2).position(|two| two[0].offset.next() != two[1].offset);
    let run = gap.map_or(masks.len(), |last| last + 1);
    &masks[..run.min(as_index(MOST_CHECKED))]
}
