//! Block check (linear self-speculation of Nemotron-Labs-Diffusion): an open block drafts, the same
//! weights check the drafts from left to right.

use alloc::format;

use super::prelude::*;
use super::{Checks, Guesses, MOST_CHECKED};
use crate::describe::NameFilter;

/// Most positions of the window: all but the first of a block are checked.
const MOST_POSITIONS: u32 = MOST_CHECKED + 1;

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "block_check",
    summary: "the tokens that decoding from left to right commits: one forward pass drafts a block, the \
              next one checks the drafts from the left and corrects the first wrong one",
    paper: "linear self-speculation, Nemotron-Labs-Diffusion; DFlash, arXiv 2602.06036",
    differs: "above temperature 0 a position has the same noise in all steps; drafts are made without \
              the published adapter",
    settings: &[],
    requires: Requirements {
        schedules: NameFilter::Only(&["streaming"]),
        attention: &[AttentionKind::OpenBlock],
        // Biases that depend on the tokens before would have to count drafts.
        excludes: &[Feature::Grammar, Feature::Penalties],
        checks: true,
        idle: |_, length| length,
        suits: |_, host| match host.schedule.get("window").and_then(|value| value.as_count()) {
            Some(window) if !(2..=MOST_POSITIONS).contains(&window) => Err(Fault {
                setting: "window",
                message: format!("must be 2 to {MOST_POSITIONS} for block_check, got {window}"),
            }),
            _ => Ok(()),
        },
        ..Requirements::NONE
    },
    build: |_, _| Box::new(BlockCheck::default()),
};

/// The first forward predicts the first token. Then two forwards take turns: one reads the last
/// committed token with masks behind it, and the likeliest tokens of the masks are the drafts; nothing is
/// committed. The other predicts the next token at each of them from the tokens before alone: drafts are
/// committed from the left as long as they are the predicted tokens, then the first prediction that is
/// not a draft. So every token is the one that a window of one position commits.
#[derive(Debug, Default)]
struct BlockCheck {
    drafts: Vec<Proposal>,
    /// Number of drafts that the forward checked.
    checked: usize,
}

impl CommitRule for BlockCheck {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.checked = scene.checked.len();
    }

    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        if lane.clock > 0 && self.checked == 0 {
            let most = masks.len().min(as_index(MOST_CHECKED));
            self.drafts.extend_from_slice(&masks[..most]);
            return;
        }
        let right = confirmed(masks, &self.drafts[..self.checked]);
        chosen.extend(0..(right + 1).min(masks.len()));
        self.drafts.clear();
    }

    fn guesses(&self) -> Guesses<'_> {
        Guesses::Checks(Checks {
            guesses: &self.drafts,
            ahead: true,
            waits: !self.drafts.is_empty(),
        })
    }
}
