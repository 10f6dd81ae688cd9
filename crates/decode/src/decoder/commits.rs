//! The commits of a step: the rule's choice, drafts, verified guesses, edits; and the cut after a
//! stop token.

use alloc::vec::Vec;

use super::Decoder;
use crate::candidate::Proposal;
use crate::commit::{self, Guesses, Scene, Scope, Verification};
use crate::coordinates::{Offset, Span};
use crate::effect::{Commit, CommitKind, Effect, LaneId, Role};

impl Decoder {
    /// Lets the rule choose among the masks of its scope, into `masks` and `chosen`. False if there are no
    /// masks.
    fn choose(&mut self, id: LaneId, proposals: &[Proposal]) -> bool {
        let lane = self.state.tree.get(id);
        let canvas = &self.state.canvas;
        self.rule.observe(&Scene { lane, canvas, proposals, checked: &self.scratch.checked });
        self.scratch.masks.clear();
        match self.rule.reads().scope {
            Scope::Lane => self.gather(id, proposals),
            Scope::Sequence => self.gather_all(proposals),
        }
        if self.scratch.masks.is_empty() {
            return false;
        }
        let lane = self.state.tree.get(id);
        self.scratch.chosen.clear();
        self.rule.select(lane, &mut self.scratch.masks, &mut self.scratch.chosen);
        if self.options.last_step.is_some_and(|last| self.step >= last) {
            self.scratch.chosen.clear();
            self.scratch.chosen.extend(0..self.scratch.masks.len());
        } else if self.options.first_alone && lane.clock == 0 && !self.rule.verdict().fills {
            self.scratch.chosen.clear();
            self.scratch.chosen.push(0);
        } else if self.rule.denoising(lane.clock).is_none() && !self.waits() {
            if !self.options.lone_stops {
                self.accompany_stops();
            }
            self.choose_required();
        }
        true
    }

    /// Returns true if the rule has its guesses checked before a step commits.
    fn waits(&self) -> bool {
        matches!(self.rule.guesses(), Guesses::Checks(checks) if checks.waits)
    }

    /// Adds the worthiest other mask if all chosen masks are stop tokens with a mask left of them.
    fn accompany_stops(&mut self) {
        let canvas = &self.state.canvas;
        let is_early = |mask: &Proposal| {
            canvas.is_stop(mask.candidate.token) && canvas.frontier() < mask.offset
        };
        let worth = |mask: &Proposal| match is_early(mask) {
            true => f64::NEG_INFINITY,
            false => self.rule.worth(mask),
        };
        let must = !self.scratch.chosen.is_empty() || self.schedule.commits_anywhere();
        let mut chosen = self.scratch.chosen.iter();
        if must && chosen.all(|index| is_early(&self.scratch.masks[*index])) {
            let best = commit::best_by(&self.scratch.masks, worth);
            if !is_early(&self.scratch.masks[best]) {
                self.scratch.chosen.push(best);
            }
        }
    }

    /// Adds the masks of one lane to `masks`.
    fn gather(&mut self, id: LaneId, proposals: &[Proposal]) {
        let (lane, canvas) = (self.state.tree.get(id), &self.state.canvas);
        let before = self.scratch.masks.len();
        let open = within(proposals, lane.range()).iter();
        self.scratch.masks.extend(open.filter(|proposal| canvas.is_mask(proposal.offset)));
        debug_assert!(
            self.scratch.masks.len() > before
                || canvas.masks(lane.range()) == 0
                || !self.scratch.checked.is_empty(),
            "a mask of every lane is scored, or a guess"
        );
    }

    /// Adds the masks of all active lanes to `masks`, and those of the lookahead that may be drafts.
    fn gather_all(&mut self, proposals: &[Proposal]) {
        for index in 0..self.state.tree.active().len() {
            let id = self.state.tree.active()[index];
            self.gather(id, proposals);
        }
        for proposal in within(proposals, self.drafted()) {
            if self.may_be_draft(proposal) {
                self.scratch.masks.push(*proposal);
            }
        }
    }

    /// The offsets in which drafts may be committed.
    fn drafted(&self) -> Span<Offset> {
        match (self.schedule.draft_threshold(), self.state.tree.generate()) {
            (Some(_), Some(lane)) => self.schedule.lookahead(lane),
            _ => Span::default(),
        }
    }

    /// Returns true if a mask of the lookahead reaches the draft threshold and is no stop token.
    fn may_be_draft(&self, proposal: &Proposal) -> bool {
        let candidate = proposal.candidate;
        let threshold = self.schedule.draft_threshold();
        self.state.canvas.is_mask(proposal.offset)
            && threshold.is_some_and(|least| candidate.probability >= least)
            && !self.state.canvas.is_stop(candidate.token)
    }

    /// The kind of the commit of a mask at `offset`.
    fn kind_of(&self, offset: Offset) -> CommitKind {
        match self.drafted().contains(offset) {
            true => CommitKind::Draft,
            false => CommitKind::Masked,
        }
    }

    /// Commits the rule's choice: one for each active lane or, by its scope, one for all.
    pub(super) fn commit_lanes(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let lanes = self.state.tree.active().len();
        let first = match self.rule.reads().scope {
            Scope::Lane => 0,
            Scope::Sequence => lanes.saturating_sub(1),
        };
        for index in first..lanes {
            let id = self.state.tree.active()[index];
            self.commit_lane(id, proposals, effects);
        }
    }

    /// Commits what the rule chooses for one lane, then its edits.
    pub(super) fn commit_lane(
        &mut self,
        id: LaneId,
        proposals: &[Proposal],
        effects: &mut Vec<Effect>,
    ) {
        if !self.choose(id, proposals) {
            return self.edit(effects);
        }
        self.scratch.chosen.sort_unstable();
        for index in 0..self.scratch.chosen.len() {
            let proposal = self.scratch.masks[self.scratch.chosen[index]];
            debug_assert!(
                !self.is_refined(proposal.offset)
                    || !self.state.canvas.is_stop(proposal.candidate.token),
                "the engine bans stop tokens on refine rows"
            );
            self.commit(proposal, self.kind_of(proposal.offset), effects);
        }
        self.edit(effects);
    }

    /// Returns true if a refine lane owns `offset`.
    fn is_refined(&self, offset: Offset) -> bool {
        let lanes = self.state.tree.active().iter();
        let mut lanes = lanes.map(|id| self.state.tree.get(*id));
        lanes.any(|lane| lane.role == Role::Refine && lane.range().contains(offset))
    }

    /// Performs the rule's edits. Under a grammar a committed token is final.
    fn edit(&mut self, effects: &mut Vec<Effect>) {
        if self.guard.is_some() {
            return;
        }
        for index in 0..self.rule.verdict().edits.len() {
            let proposal = self.rule.verdict().edits[index];
            self.commit(proposal, CommitKind::Edit, effects);
        }
    }

    /// Takes a step from the candidates of a guessed canvas while one is the canvas as it stands. Each is
    /// the step that the next forward would have given, so guesses change no token.
    pub(super) fn follow_branches(
        &mut self,
        mut branches: &[Proposal],
        born: usize,
        effects: &mut Vec<Effect>,
    ) {
        let mut level = 0;
        while let Some(reached) = self.reached(&effects[born..]) {
            let mut candidates = branches;
            for _ in level..reached {
                (candidates, branches) = first_branch(branches);
            }
            level = reached;
            let born = effects.len();
            self.step += 1;
            self.take_step(candidates, born, effects);
        }
    }

    /// Number of the tried branch that is the canvas as it stands, whose lanes are those of the forward;
    /// `effects` are those since. Every step commits a mask, so that a later one is another branch.
    fn reached(&self, effects: &[Effect]) -> Option<usize> {
        let is_commit = |effect: &&Effect| matches!(effect, Effect::Commit(_));
        let is_same = |effect: &Effect| matches!(effect, Effect::Commit(_) | Effect::Advance(_));
        let commits = effects.iter().filter(is_commit).count();
        let level = self.scratch.tried_ends.binary_search(&commits).ok()?;
        let canvas = &self.state.canvas;
        let stands = |guess: &Proposal| canvas.get(guess.offset) == Some(guess.candidate.token);
        let same = effects.iter().all(is_same) && self.scratch.tried[..commits].iter().all(stands);
        same.then_some(level + 1)
    }

    /// Commits the guesses that the rule sanctions, from the boldest branch on that follows from the
    /// last one reached; returns the candidates of the last branch reached.
    pub(super) fn climb<'a>(
        &mut self,
        mut reached: &'a [Proposal],
        mut branches: &'a [Proposal],
        effects: &mut Vec<Effect>,
    ) -> &'a [Proposal] {
        let Some(id) = self.state.tree.active().last().copied() else {
            return reached;
        };
        let (mut level, mut filled) = (0, 0);
        while !branches.is_empty() && self.choose(id, reached) {
            let sanctioned = filled + self.sanctioned(filled);
            let ends = &self.scratch.tried_ends[level..];
            let levels = ends.partition_point(|end| *end <= sanctioned);
            if levels == 0 {
                return reached;
            }
            let end = ends[levels - 1];
            for index in filled..end {
                if let Some(choice) = self.chosen_as(self.scratch.tried[index]) {
                    self.commit(choice, self.kind_of(choice.offset), effects);
                }
            }
            for _ in 0..levels {
                (reached, branches) = first_branch(branches);
            }
            (level, filled) = (level + levels, end);
        }
        reached
    }

    /// Number of guesses from `start` on that the rule's last choice contains.
    fn sanctioned(&self, start: usize) -> usize {
        let next = self.scratch.tried[start..].iter();
        next.take_while(|guess| self.chosen_as(**guess).is_some()).count()
    }

    /// The proposal of the rule's last choice that has the guess's offset and token.
    fn chosen_as(&self, guess: Proposal) -> Option<Proposal> {
        let mut chosen = self.scratch.chosen.iter();
        let masks = &self.scratch.masks;
        let found = chosen.find(|index| masks[**index].says(&guess));
        found.map(|index| masks[*index])
    }

    /// Copies the guesses that the forward tried or checked, before the rule makes others. Returns how
    /// the tried ones are verified.
    pub(super) fn remember_guesses(&mut self, branches: &[Proposal]) -> Verification {
        let mut tried = core::mem::take(&mut self.scratch.tried);
        let mut ends = core::mem::take(&mut self.scratch.tried_ends);
        let mut checked = core::mem::take(&mut self.scratch.checked);
        tried.clear();
        ends.clear();
        checked.clear();
        let guesses = self.branches();
        let verification = guesses.verification;
        if !branches.is_empty() {
            tried.extend_from_slice(guesses.proposals);
            ends.extend_from_slice(guesses.ends);
        }
        checked.extend_from_slice(self.guesses_to_check());
        self.scratch.tried = tried;
        self.scratch.tried_ends = ends;
        self.scratch.checked = checked;
        verification
    }

    /// Commits every scored mask after the lanes if the rule fills the canvas.
    pub(super) fn fill(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        if !self.rule.verdict().fills {
            return;
        }
        // The masks of the lanes are committed already.
        let lanes = self.lanes().map(|lane| lane.range.end).max();
        let behind = lanes.unwrap_or_default().to(Offset::new(u32::MAX));
        for proposal in within(proposals, behind) {
            if self.state.canvas.is_mask(proposal.offset) {
                self.commit(*proposal, CommitKind::Masked, effects);
            }
        }
    }

    /// Adds the worthiest mask of the lane if the rule has chosen none, and that of all offsets
    /// in which the schedule demands a commit if none of them is chosen.
    fn choose_required(&mut self) {
        let worth = |mask: &Proposal| self.rule.worth(mask);
        if self.scratch.chosen.is_empty() && self.schedule.commits_anywhere() {
            self.scratch.chosen.push(commit::best_by(&self.scratch.masks, worth));
        }
        let mut next = Offset::ZERO;
        while let Some(required) = self.schedule.must_commit(&self.state, next) {
            next = required.end;
            let start = self.scratch.masks.partition_point(|mask| mask.offset < required.start);
            let range = start..start + within(&self.scratch.masks, required).len();
            if !range.is_empty() && !self.scratch.chosen.iter().any(|index| range.contains(index)) {
                let best = commit::best_by(&self.scratch.masks[range], worth);
                self.scratch.chosen.push(start + best);
            }
        }
    }

    /// Commits masks of the generate lane's lookahead that reach the draft threshold, unless the rule has
    /// chosen among them.
    pub(super) fn commit_drafts(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        if self.rule.reads().scope == Scope::Sequence {
            return;
        }
        for proposal in within(proposals, self.drafted()) {
            if self.may_be_draft(proposal) {
                self.commit(*proposal, CommitKind::Draft, effects);
            }
        }
    }

    pub(super) fn commit(
        &mut self,
        proposal: Proposal,
        kind: CommitKind,
        effects: &mut Vec<Effect>,
    ) {
        let commit = Commit {
            offset: proposal.offset,
            token: proposal.candidate.token,
            probability: proposal.candidate.probability,
            kind,
        };
        if let Some(guard) = &mut self.guard {
            return guard.choose(commit);
        }
        self.state.canvas.commit(commit, self.step);
        effects.push(Effect::Commit(commit));
    }

    /// Cuts the canvas at the limit once every offset before it is committed.
    pub(super) fn cut_at_limit(&mut self, effects: &mut Vec<Effect>) {
        let (canvas, limit) = (&mut self.state.canvas, self.options.limit);
        let open = canvas.first_uncommitted(Span::first(limit));
        if limit < canvas.len() && open.is_none() {
            canvas.shorten(limit);
            effects.push(Effect::Shorten { len: limit });
        }
    }

    /// Cuts the canvas after the leftmost stop token that this step committed.
    /// `effects[born..]` are the effects of this step.
    pub(super) fn prune(&mut self, born: usize, effects: &mut Vec<Effect>) {
        let canvas = &self.state.canvas;
        let reads = self.rule.reads();
        let stop = if reads.lane && !reads.canvas {
            // Tokens of earlier steps become final only now, too.
            let mut lanes = self.lanes().flat_map(|lane| lane.range);
            lanes.find(|offset| canvas.is_stop_at(*offset))
        } else {
            let stops = effects[born..].iter().filter_map(|effect| match effect {
                Effect::Commit(commit) if canvas.is_stop(commit.token) => Some(commit.offset),
                _ => None,
            });
            stops.min()
        };
        if let Some(offset) = stop
            && offset.next() < self.state.canvas.end()
        {
            let len = offset.next().get();
            self.state.canvas.shorten(len);
            effects.push(Effect::Shorten { len });
        }
    }

    /// Commits the stop token where the rule expects the end of the text (EoTP). Under a grammar the text
    /// ends where the grammar does.
    pub(super) fn commit_expected_end(&mut self, effects: &mut Vec<Effect>) {
        if let Some(end) = self.rule.verdict().end
            && self.guard.is_none()
            && self.state.canvas.is_mask(end.offset)
        {
            self.commit(end, CommitKind::Masked, effects);
        }
    }
}

/// Splits proposals into those of the first branch and the rest.
pub(super) fn first_branch(proposals: &[Proposal]) -> (&[Proposal], &[Proposal]) {
    let border = proposals.windows(2).position(|two| two[1].offset <= two[0].offset);
    proposals.split_at(border.map_or(proposals.len(), |last| last + 1))
}

/// The proposals whose offset lies in `range`.
fn within(proposals: &[Proposal], range: Span<Offset>) -> &[Proposal] {
    let start = proposals.partition_point(|proposal| proposal.offset < range.start);
    let end = proposals.partition_point(|proposal| proposal.offset < range.end);
    &proposals[start..end.max(start)]
}
