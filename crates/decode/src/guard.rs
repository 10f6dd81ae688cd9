//! Commits under a grammar: a token is final if it continues the committed prefix, else provisional.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::TokenId;
use crate::candidate::Proposal;
use crate::canvas::Canvas;
use crate::constraint::{Constraint, ConstraintError, Failure};
use crate::coordinates::{Offset, as_index};
use crate::effect::{Commit, CommitKind, Effect};

/// Keeps the committed prefix inside a grammar.
///
/// A token that the commit rule chooses is committed if it continues the prefix without a gap and
/// the grammar accepts it. All others are provisional: later forwards read them. When the frontier
/// reaches a provisional token, the token is committed if the grammar accepts it; otherwise it and
/// every provisional token right of it become masks again. Tokens that the grammar forces are
/// committed without a forward. The frontier is a mask after every step, and its row is scored
/// under [`Guard::allowed`], so every step commits a token.
#[derive(Debug)]
pub(crate) struct Guard {
    constraint: Box<dyn Constraint>,
    allowed: Vec<u32>,
    /// The rule's choice in this step, by offset.
    chosen: Vec<Commit>,
    forced: Vec<TokenId>,
    over: bool,
}

/// The canvas and effects of one step.
pub(crate) struct Walk<'a> {
    pub(crate) canvas: &'a mut Canvas,
    pub(crate) step: u32,
    /// End of the offsets at which a token may be committed. Most schedules forward no token to the
    /// right of what the step computed, so that it would have no K/V.
    pub(crate) end: Offset,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl Guard {
    /// A guard of an empty canvas that has not asked the grammar yet.
    pub(crate) fn new(constraint: Box<dyn Constraint>) -> Self {
        Self {
            constraint,
            allowed: Vec::new(),
            chosen: Vec::new(),
            forced: Vec::new(),
            over: false,
        }
    }

    /// The tokens allowed at the frontier; stop tokens are among them where the text may end.
    pub(crate) fn allowed(&self) -> &[u32] {
        &self.allowed
    }

    /// Returns true if the text is complete and no token may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Notes a token that the commit rule chose; offsets ascend within a step.
    pub(crate) fn choose(&mut self, write: Commit) {
        self.chosen.push(write);
    }

    /// Commits or places the chosen tokens. `proposals` holds the candidate of the frontier.
    pub(crate) fn settle(
        &mut self,
        mut walk: Walk<'_>,
        proposals: &[Proposal],
    ) -> Result<(), Failure> {
        let frontier = walk.canvas.frontier();
        self.choose_frontier(frontier, proposals);
        let mut offset = frontier;
        loop {
            offset = self.follow_pins(offset, walk.canvas)?;
            if offset >= walk.end {
                break;
            }
            let next = self.at(offset, walk.canvas);
            let fits = match next {
                Some(write) => self.accept(write.token, walk.canvas)?,
                None => false,
            };
            match next {
                Some(write) if fits => {
                    walk.commit(write);
                    offset = offset.next();
                    if walk.canvas.is_stop(write.token) {
                        self.chosen.clear();
                        return Ok(());
                    }
                }
                _ => {
                    if next.is_some() {
                        self.give_up(offset, &mut walk);
                    }
                    let end = self.force(offset, &mut walk)?;
                    if end == offset {
                        break;
                    }
                    offset = end;
                }
            }
        }
        if offset == frontier {
            return Err(Failure::Candidate);
        }
        self.place(offset, &mut walk);
        if offset < walk.canvas.end() {
            return Ok(self.look_ahead(offset, walk.canvas)?);
        }
        self.over = self.constraint.is_over();
        Ok(())
    }

    /// Accepts the pins from `start` on; returns the offset after them.
    ///
    /// # Errors
    /// The grammar refuses one.
    fn follow_pins(&mut self, start: Offset, canvas: &Canvas) -> Result<Offset, ConstraintError> {
        let mut offset = start;
        while canvas.is_pinned(offset) && offset < canvas.end() {
            let token = canvas.get(offset).unwrap_or_default();
            if !self.constraint.accept(token)? {
                let message = format!(
                    "the given token {token} at position {offset} of the canvas does not continue the text"
                );
                return Err(ConstraintError(message));
            }
            offset = offset.next();
        }
        Ok(offset)
    }

    /// Asks the grammar about an empty canvas, or about its first pins.
    pub(crate) fn begin(&mut self, canvas: &Canvas) -> Result<(), ConstraintError> {
        let offset = self.follow_pins(Offset::ZERO, canvas)?;
        self.look_ahead(offset, canvas)
    }

    /// Adds the frontier's candidate to the choice: its row was scored under the grammar, so it
    /// can always be committed.
    fn choose_frontier(&mut self, frontier: Offset, proposals: &[Proposal]) {
        let found = proposals.binary_search_by_key(&frontier, |proposal| proposal.offset);
        let place = self.chosen.partition_point(|write| write.offset < frontier);
        let chosen = self.chosen.get(place);
        if let Ok(index) = found
            && chosen.is_none_or(|write| write.offset != frontier)
        {
            let candidate = proposals[index].candidate;
            let write = Commit {
                offset: frontier,
                token: candidate.token,
                probability: candidate.probability,
                kind: CommitKind::Masked,
            };
            self.chosen.insert(place, write);
        }
    }

    /// The provisional token at `offset`, or the one chosen for it.
    fn at(&self, offset: Offset, canvas: &Canvas) -> Option<Commit> {
        canvas.provisional(offset).or_else(|| {
            let found = self.chosen.binary_search_by_key(&offset, |write| write.offset);
            found.ok().map(|index| self.chosen[index])
        })
    }

    fn accept(&mut self, token: TokenId, canvas: &Canvas) -> Result<bool, ConstraintError> {
        // A request may name a word of the grammar as a stop token: it ends the text wherever the
        // text may end.
        let ends = canvas.is_stop(token) && self.constraint.may_end();
        Ok(ends || self.constraint.accept(token)?)
    }

    /// Makes every token from `offset` on that is not committed a mask: it continued another text.
    fn give_up(&mut self, offset: Offset, walk: &mut Walk<'_>) {
        self.chosen.retain(|write| write.offset < offset);
        for offset in offset.to(walk.canvas.end()) {
            if walk.canvas.provisional(offset).is_some() {
                walk.canvas.revoke(offset);
                walk.effects.push(Effect::Revoke { offset });
            }
        }
    }

    /// Commits the forced tokens from `offset` on; returns the offset after them.
    fn force(&mut self, offset: Offset, walk: &mut Walk<'_>) -> Result<Offset, ConstraintError> {
        let mut forced = core::mem::take(&mut self.forced);
        self.constraint.forced(&mut forced);
        let mut next = offset;
        for &token in &forced {
            // A pin says itself whether it is the token that must come.
            if next >= walk.end || walk.canvas.is_pinned(next) || !self.constraint.accept(token)? {
                break;
            }
            let standing = self.at(next, walk.canvas);
            if standing.is_some_and(|write| write.token != token) {
                self.give_up(next, walk);
            }
            let standing = standing.filter(|write| write.token == token);
            walk.commit(standing.unwrap_or(Commit {
                offset: next,
                token,
                probability: 1.0,
                kind: CommitKind::Masked,
            }));
            next = next.next();
        }
        self.forced = forced;
        Ok(next)
    }

    /// Places the tokens that were chosen right of the new frontier.
    fn place(&mut self, frontier: Offset, walk: &mut Walk<'_>) {
        for write in self.chosen.drain(..) {
            let beyond = write.offset > frontier && write.offset < walk.end;
            if beyond && walk.canvas.is_mask(write.offset) && !walk.canvas.is_stop(write.token) {
                walk.canvas.place(write, walk.step);
                walk.effects.push(Effect::Place(write));
            }
        }
    }

    /// Updates the tokens allowed at the frontier `offset`. No text ends before the last pin.
    fn look_ahead(&mut self, offset: Offset, canvas: &Canvas) -> Result<(), ConstraintError> {
        let may_stop = offset >= canvas.pins_end();
        self.over = self.constraint.is_over() && may_stop;
        if self.over {
            return Ok(());
        }
        self.constraint.allowed(&mut self.allowed)?;
        if may_stop && self.constraint.may_end() {
            for &stop in canvas.stops() {
                if let Some(word) = self.allowed.get_mut(as_index(stop / 32)) {
                    *word |= 1 << (stop % 32);
                }
            }
        }
        if self.allowed.iter().all(|word| *word == 0) {
            let message = "no token of the vocabulary can continue the text".to_string();
            return Err(ConstraintError(message));
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn commit(&mut self, write: Commit) {
        if self.canvas.provisional(write.offset).is_some() {
            self.canvas.keep(write.offset);
        } else {
            self.canvas.commit(write, self.step);
        }
        self.effects.push(Effect::Commit(write));
    }
}
