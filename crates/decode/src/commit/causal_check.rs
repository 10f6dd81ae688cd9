//! Causal check: the parallel guesses of causal weights, each checked against the candidate that the
//! weights give behind the tokens before it.

use alloc::format;

use super::prelude::*;
use super::{Checks, Guesses, MOST_CHECKED};
use crate::describe::NameFilter;

/// θ.
const ENTROPY_THRESHOLD: SettingInfo =
    SettingInfo::number("entropy_threshold", 0.0..=f64::MAX, 0.6)
        .says("largest entropy of a guessed mask, in nats");
/// λ.
const POSITION_PENALTY: SettingInfo = SettingInfo::number("position_penalty", 0.0..=f64::MAX, 0.01)
    .says("nats added to the entropy for each position after the first guess");

/// The row that checks.
const CHECK: SettingInfo = SettingInfo::name("check", &["mask", "next"], "mask").says(
    "the token that a guess is compared with: mask: the token that a mask in its position becomes, at a row more for \
     each guess; next: the token that follows the text before it, as the row of the token before predicts \
     it; for weights trained on next tokens, as WeDLM's are, and always for I-DLM's",
);

/// Most guesses of a pass.
const GUESSES: SettingInfo = SettingInfo::integer("guesses", 1..=63, 63)
    .says("most guesses of a pass; the rest of the window has masks");

/// Guesses that were made behind a wrong one.
const STALE: SettingInfo = SettingInfo::name("stale", &["keep", "drop"], "keep").says(
    "guesses that were made behind a wrong guess: keep: they are checked nevertheless; drop: the next pass \
     has masks in their place, as I-DLM's sampler",
);

/// Most positions of the window: its rows name the slots that they see one by one.
const MOST_POSITIONS: u32 = MOST_CHECKED + 1;

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "causal_check",
    summary: "the tokens that decoding from left to right commits, in fewer forward passes: guesses \
              are checked from the left, and the first wrong one is corrected",
    paper: "speculative decoding, arXiv 2211.17192, over WeDLM, arXiv 2512.22737",
    differs: "",
    settings: &[ENTROPY_THRESHOLD, POSITION_PENALTY, CHECK, GUESSES, STALE],
    requires: Requirements {
        schedules: NameFilter::Only(&["streaming"]),
        attention: &[AttentionKind::Causal],
        // Biases that depend on the tokens before would have to count guesses.
        excludes: &[Feature::Grammar, Feature::Penalties],
        checks: true,
        suits: |_, host| match host.schedule.get("window").and_then(|value| value.as_count()) {
            Some(window) if window > MOST_POSITIONS => Err(Fault {
                setting: "window",
                message: format!("must be at most {MOST_POSITIONS} for causal_check, got {window}"),
            }),
            _ => Ok(()),
        },
        ..Requirements::NONE
    },
    build: |settings, _| {
        Box::new(CausalCheck {
            threshold: settings.number(&ENTROPY_THRESHOLD),
            penalty: settings.number(&POSITION_PENALTY),
            ahead: settings.name(&CHECK) == "next",
            most: settings.count(&GUESSES),
            drops_stale: settings.name(&STALE) == "drop",
            guesses: Vec::new(),
            checked: 0,
        })
    },
};

/// Guesses the run of masks after the first one whose H_i + λ (i - f) is at most θ, f the first
/// guess. The next forward computes the candidate of every guess given the tokens before it alone,
/// as decoding one token at a time does. Guesses are committed from the left as long as they are
/// these candidates. The first candidate that is none, or that of the mask after all guesses, is
/// committed too. So each step commits one token at least, and every token is the one that a window
/// of one position commits.
///
/// A position has the same noise in all steps. A guess is drawn with the noise of the candidate that
/// checks it, and the committed tokens are a function of the noise that does not depend on the
/// guesses: above temperature 0 they have the distribution of decoding one token at a time, as after
/// an acceptance with probability min(1, q / p) and a draw from the rest of q (arXiv 2211.17192).
#[derive(Debug)]
struct CausalCheck {
    threshold: f64,
    penalty: f64,
    ahead: bool,
    most: u32,
    drops_stale: bool,
    guesses: Vec<Proposal>,
    /// Number of guesses that the forward checked.
    checked: usize,
}

impl CausalCheck {
    /// Guesses masks from the left. The last one is left open: its candidate is checked already if
    /// all guesses are right.
    fn guess(&mut self, masks: &[Proposal]) {
        self.guesses.clear();
        let Some((_, open)) = masks.split_last() else {
            return;
        };
        let sure = |(distance, mask): &(u32, &Proposal)| {
            let cost = self.penalty * f64::from(*distance);
            f64::from(mask.candidate.entropy) + cost <= self.threshold
        };
        let run = (0..self.most).zip(open).take_while(sure);
        self.guesses.extend(run.map(|(_, mask)| *mask));
    }
}

impl CommitRule for CausalCheck {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.checked = scene.checked.len();
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let right = confirmed(masks, &self.guesses[..self.checked]);
        let commits = (right + 1).min(masks.len());
        chosen.extend(0..commits);
        match self.drops_stale && right < self.checked {
            true => self.guesses.clear(),
            false => self.guess(&masks[commits..]),
        }
    }

    fn replace_guesses(&mut self, expected: &[Proposal]) -> bool {
        if !expected.is_empty() {
            self.guesses.clear();
            self.guesses.extend(expected.iter().take(as_index(MOST_CHECKED)));
        }
        true
    }

    fn guesses(&self) -> Guesses<'_> {
        Guesses::Checks(Checks { guesses: &self.guesses, ahead: self.ahead, waits: false })
    }
}
