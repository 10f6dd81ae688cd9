//! Guesses from a text that the caller expects.

use alloc::vec::Vec;

use super::{Decoder, Scratch};
use crate::candidate::{Candidate, Proposal, TokenId};
use crate::commit::{Branches, Guesses, Verification};
use crate::coordinates::{Offset, Span, as_count, as_index};

/// Nested guessed canvases, each with one token of the expected text more than the one before. A branch
/// counts only where the decoder's own steps have filled the canvas with exactly its guesses
/// ([`Verification::Equal`]); the candidates for it are then those of the next forward.
#[derive(Debug)]
pub(super) struct Expected {
    /// The guesses, the likeliest next commit first.
    guesses: Vec<Proposal>,
    /// 1, 2, 3, ...: number of guesses of each branch.
    ends: Vec<usize>,
}

/// The candidate of a mask that no forward has scored yet.
const UNSCORED: Candidate = Candidate {
    token: 0,
    probability: 0.0,
    runner_up: 0,
    runner_up_probability: 0.0,
    entropy: f32::MAX,
    gap: 0.0,
    present: 0.0,
};

impl Expected {
    /// No guesses yet; at most `canvases` at once.
    pub(super) fn new(canvases: u32) -> Self {
        Self { guesses: Vec::new(), ends: (1..=as_index(canvases)).collect() }
    }

    pub(super) fn branches(&self) -> Branches<'_> {
        let count = self.guesses.len().min(self.ends.len());
        Branches {
            proposals: &self.guesses[..count],
            ends: &self.ends[..count],
            verification: Verification::Equal,
        }
    }
}

impl Decoder {
    /// Takes the text that the caller expects from the frontier on. The next forward checks it if the
    /// rule's guesses are checked; else it tries the canvases that the next commits leave if the text is
    /// right.
    pub fn expect(&mut self, text: &[TokenId]) {
        let mut guesses = core::mem::take(&mut self.expected.guesses);
        guesses.clear();
        if let (false, [lane]) = (self.is_constrained(), self.state.tree.active()) {
            let range = self.state.tree.get(*lane).range().clip(self.state.canvas.end());
            self.guess(range, text, &mut guesses);
        }
        if let Guesses::Checks(_) = self.rule.guesses() {
            self.rule.replace_guesses(&guesses);
        }
        self.expected.guesses = guesses;
    }

    /// Guesses the masks of `range` for which the text has a token.
    fn guess(&self, range: Span<Offset>, text: &[TokenId], guesses: &mut Vec<Proposal>) {
        let canvas = &self.state.canvas;
        let token = |offset: Offset| {
            let index = offset.checked_distance_from(canvas.frontier())?;
            text.get(as_index(index)).copied()
        };
        let masks = || range.iter().filter(|offset| canvas.is_mask(*offset));
        if let Guesses::Checks(_) = self.rule.guesses() {
            // The last mask is left open: its candidate is the step's last token if all guesses are right.
            let open = as_index(canvas.masks(range).saturating_sub(1));
            let run = masks().take(open).zip(canvas.frontier().to(range.end).iter());
            let run = run.take_while(|(mask, next)| mask == next);
            guesses.extend(run.map_while(|(offset, _)| {
                Some(Proposal {
                    offset,
                    candidate: Candidate { token: token(offset)?, ..UNSCORED },
                })
            }));
            return;
        }
        let scored = &self.scratch.masks;
        guesses.extend(masks().filter_map(|offset| {
            let token = token(offset).filter(|token| !canvas.is_stop(*token))?;
            let found = scored.binary_search_by_key(&offset, |mask| mask.offset);
            let candidate = found.map_or(UNSCORED, |index| scored[index].candidate);
            Some(Proposal { offset, candidate: Candidate { token, ..candidate } })
        }));
        let worth = |guess: &Proposal| self.rule.worth(guess);
        guesses
            .sort_unstable_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.offset.cmp(&b.offset)));
    }

    /// Numbers of the tokens of an expected text that the last forward verified, and of the right ones.
    pub fn verified(&self) -> (u32, u32) {
        let (Scratch { tried, checked, .. }, canvas) = (&self.scratch, &self.state.canvas);
        let is_expected =
            |proposal: &&Proposal| self.expected.guesses.iter().any(|text| text.says(proposal));
        let is_right =
            |proposal: &&Proposal| canvas.get(proposal.offset) == Some(proposal.candidate.token);
        let verified = || tried.iter().chain(checked).filter(is_expected);
        (as_count(verified().count()), as_count(verified().filter(is_right).count()))
    }
}
