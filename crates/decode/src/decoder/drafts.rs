//! Drafts of another model or copied from the text: what a step verifies, and how far they are true.

use alloc::vec::Vec;

use super::Decoder;
use crate::candidate::{Proposal, TokenId};
use crate::coordinates::{as_count, as_index};
use crate::effect::{CommitKind, Effect};

impl Decoder {
    /// Number of drafts that the next step can verify; 0 if the schedule takes none, and under a
    /// grammar.
    pub fn wants_drafts(&self) -> u32 {
        if self.is_done() || self.is_constrained() {
            return 0;
        }
        let canvas = &self.state.canvas;
        // The step commits one token more than it verifies.
        let room = canvas.end().distance_from(canvas.frontier());
        self.schedule.drafts().min(room.saturating_sub(1))
    }

    /// Offers drafts from the frontier on. The next step verifies as many as
    /// [`Self::wants_drafts`] says, and forgets all.
    pub fn offer_drafts(&mut self, drafts: &[TokenId]) {
        let count = as_index(self.wants_drafts()).min(drafts.len());
        self.drafts.clear();
        self.drafts.extend_from_slice(&drafts[..count]);
    }

    /// The drafts that the next step verifies, from the frontier on.
    pub fn drafts(&self) -> &[TokenId] {
        &self.drafts
    }

    /// Goes on from the token that a step committed at the frontier: while a committed token is what
    /// was drafted, the model's next prediction was made after true tokens and is committed too
    /// (DiffuSpec, arXiv 2510.02358; greedy verification of arXiv 2211.17192). So the text is the
    /// model's own, whatever was drafted.
    pub(super) fn commit_verified(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let mut drafts = core::mem::take(&mut self.drafts);
        let first = self.state.canvas.frontier();
        for (number, draft) in drafts.iter().enumerate() {
            let offset = first.plus(as_count(number));
            let canvas = &self.state.canvas;
            if canvas.get(offset) != Some(*draft) || canvas.is_stop(*draft) {
                break;
            }
            let next = offset.next();
            let found = proposals.binary_search_by_key(&next, |proposal| proposal.offset);
            let Ok(found) = found else {
                break;
            };
            self.commit(proposals[found], CommitKind::Draft, effects);
        }
        drafts.clear();
        self.drafts = drafts;
    }
}
