//! One sequence's decoding state: candidates in, effects out.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::{Canvas, Write};
use crate::commit::{self, CommitRule};
use crate::config::{DecoderConfig, ScheduleConfig};
use crate::constraint::{Constraint, ConstraintError};
use crate::effect::{CommitKind, DoneReason, Effect, LaneId, Role};
use crate::guard::{Guard, Walk};
use crate::lane::{LaneTree, Status};
use crate::schedule::{self, LaneSchedule, State};
use crate::token_class::TokenClasses;

/// What a decoder needs to know of its sequence.
#[derive(Debug)]
pub struct Input<'a> {
    /// L, the generation budget.
    pub budget: u32,
    /// E, the stop set.
    pub stops: &'a [TokenId],
    /// Delimiter facts of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// The prompt is code-shaped.
    pub code_prompt: bool,
    /// What the emitted tokens must follow. Forks are off under one: a border must be final.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// The state machine of one sequence. Pure: the same proposals give the same effects.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    schedule: Box<dyn LaneSchedule>,
    rule: Box<dyn CommitRule>,
    prune: bool,
    early_stop: bool,
    guard: Option<Guard>,
    failure: Option<ConstraintError>,
    step: u32,
    done: Option<DoneReason>,
    /// Scratch of one step.
    masks: Vec<Proposal>,
    chosen: Vec<usize>,
}

/// What one active lane wants computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub id: LaneId,
    /// Its role; a refine lane's rows exclude the stop set.
    pub role: Role,
    /// Offsets it owns, clipped to the canvas.
    pub range: Range<u32>,
    /// Offsets behind it that are forwarded as right context, clipped to the canvas.
    pub lookahead: Range<u32>,
    /// Whether the masks of the lookahead are scored (drafts may be committed).
    pub drafts: bool,
}

impl Decoder {
    /// A decoder before its first step, with the effects of its birth. A budget of 0 is done.
    pub fn new(config: &DecoderConfig, input: Input<'_>, effects: &mut Vec<Effect>) -> Self {
        let canvas = Canvas::new(input.budget, input.stops);
        let mut schedule = config.schedule.clone();
        let guard = input.constraint.map(|constraint| {
            if let ScheduleConfig::AsyncLane(config) = &mut schedule {
                config.fork = None;
            }
            Guard::new(constraint, &canvas)
        });
        let (guard, failure) = match guard.transpose() {
            Ok(guard) => (guard, None),
            Err(error) => (None, Some(error)),
        };
        let mut decoder = Self {
            state: State {
                canvas,
                tree: LaneTree::default(),
                classes: input.classes,
                code_prompt: input.code_prompt,
            },
            schedule: schedule::build(&schedule),
            rule: commit::build(&config.commit),
            prune: config.prune,
            early_stop: config.early_stop || guard.is_some(),
            guard,
            failure,
            step: 0,
            done: None,
            masks: Vec::new(),
            chosen: Vec::new(),
        };
        let over = decoder.guard.as_ref().is_some_and(Guard::is_over);
        if decoder.failure.is_some() {
            decoder.end(DoneReason::Failed, effects);
        } else if over {
            decoder.end(DoneReason::Complete, effects);
        } else if input.budget == 0 {
            decoder.end(DoneReason::Budget, effects);
        } else {
            decoder.schedule.start(&mut decoder.state, effects);
        }
        decoder
    }

    /// The same decoder with a commit rule of the caller's.
    #[must_use]
    pub fn with_rule(self, rule: Box<dyn CommitRule>) -> Self {
        Self { rule, ..self }
    }

    /// Steps applied.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Whether the sequence needs no further step.
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// Why the sequence needs no further step.
    pub fn done(&self) -> Option<DoneReason> {
        self.done
    }

    /// What went wrong, behind [`DoneReason::Failed`].
    pub fn failure(&self) -> Option<&ConstraintError> {
        self.failure.as_ref()
    }

    /// Under a grammar: the tokens that may stand at the canvas's frontier, as a bit set (token t
    /// is bit `t % 32` of word `t / 32`). The frontier's candidate must be one of them.
    pub fn allowed(&self) -> Option<&[u32]> {
        self.guard.as_ref().map(Guard::allowed)
    }

    /// The generated tokens.
    pub fn canvas(&self) -> &Canvas {
        &self.state.canvas
    }

    /// The lanes.
    pub fn tree(&self) -> &LaneTree {
        &self.state.tree
    }

    /// The active lanes, left to right; their ranges and lookaheads are disjoint and ascending.
    pub fn lanes(&self) -> impl Iterator<Item = LaneView> {
        let len = self.state.canvas.len();
        let drafts = self.schedule.draft_threshold().is_some();
        self.state.tree.active().iter().map(move |id| {
            let lane = self.state.tree.get(*id);
            let clip = |range: Range<u32>| range.start.min(len)..range.end.min(len);
            LaneView {
                id: *id,
                role: lane.role,
                range: clip(lane.range()),
                lookahead: clip(self.schedule.lookahead(lane)),
                drafts,
            }
        })
    }

    /// The furthest valid token of any unfinished lane: max over lanes of s + v (AsyncLane
    /// eq. 12).
    pub fn effective_len(&self) -> u32 {
        let tree = &self.state.tree;
        // A waiting continuation is the last leaf, so it was born last.
        let waiting = tree
            .lanes()
            .last()
            .filter(|lane| lane.status == Status::Waiting);
        let lanes = tree.active().iter().map(|id| tree.get(*id)).chain(waiting);
        lanes
            .map(|lane| self.state.canvas.first_open(lane.range()))
            .max()
            .unwrap_or(0)
    }

    /// Applies one step. `proposals` holds one candidate for every mask of every active lane
    /// (and of the lookaheads with drafts), by offset.
    pub fn apply(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        debug_assert!(
            proposals
                .windows(2)
                .all(|two| two[0].offset < two[1].offset)
        );
        self.step += 1;
        let born = effects.len();
        let computed = match self.guard {
            Some(_) => self.lanes().map(|lane| lane.lookahead.end).max(),
            None => None,
        };
        self.schedule.observe(&mut self.state, proposals, effects);
        for index in 0..self.state.tree.active().len() {
            let id = self.state.tree.active()[index];
            self.commit_lane(id, proposals, effects);
        }
        self.commit_drafts(proposals, effects);
        if let Some(guard) = &mut self.guard {
            let walk = Walk {
                canvas: &mut self.state.canvas,
                step: self.step,
                end: computed.unwrap_or(0),
                effects,
            };
            self.failure = guard.settle(walk, proposals).err();
        }
        if self.prune {
            self.prune(born, effects);
        }
        self.state.tree.tick();
        self.schedule.advance(&mut self.state, effects);
        self.emit(effects);
    }

    fn commit_lane(&mut self, id: LaneId, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let lane = self.state.tree.get(id);
        let canvas = &self.state.canvas;
        let open = within(proposals, lane.range()).iter();
        self.masks.clear();
        self.masks
            .extend(open.filter(|proposal| canvas.is_mask(proposal.offset)));
        if self.masks.is_empty() {
            return;
        }
        let refine = lane.role == Role::Refine;
        debug_assert_eq!(
            self.masks.len() as u32,
            canvas.masks(lane.range()),
            "every mask scored"
        );
        self.chosen.clear();
        self.rule.select(lane, &mut self.masks, &mut self.chosen);
        self.choose_owed();
        self.chosen.sort_unstable();
        for index in 0..self.chosen.len() {
            let proposal = self.masks[self.chosen[index]];
            debug_assert!(
                !refine || !self.state.canvas.is_stop(proposal.candidate.token),
                "the engine bans stop tokens on refine rows"
            );
            self.commit(proposal, CommitKind::Masked, effects);
        }
    }

    /// Adds the worthiest mask where the rule has chosen none and one is owed.
    fn choose_owed(&mut self) {
        let worth = |mask: &Proposal| self.rule.worth(mask);
        if self.chosen.is_empty() {
            self.chosen.push(commit::best_by(&self.masks, worth));
        }
        let owed = self.schedule.owed(&self.state);
        let from = self.masks.partition_point(|mask| mask.offset < owed.start);
        let range = from..from + within(&self.masks, owed).len();
        if !range.is_empty() && !self.chosen.iter().any(|index| range.contains(index)) {
            let best = commit::best_by(&self.masks[range], worth);
            self.chosen.push(from + best);
        }
    }

    fn commit_drafts(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let (Some(threshold), Some(lane)) =
            (self.schedule.draft_threshold(), self.state.tree.generate())
        else {
            return;
        };
        let window = self.schedule.lookahead(lane);
        for proposal in within(proposals, window) {
            let candidate = proposal.candidate;
            if self.state.canvas.is_mask(proposal.offset)
                && candidate.probability >= threshold
                && !self.state.canvas.is_stop(candidate.token)
            {
                self.commit(*proposal, CommitKind::Draft, effects);
            }
        }
    }

    fn commit(&mut self, proposal: Proposal, kind: CommitKind, effects: &mut Vec<Effect>) {
        let Proposal { offset, candidate } = proposal;
        let (token, probability) = (candidate.token, candidate.probability);
        let write = Write {
            offset,
            token,
            probability,
            kind,
        };
        if let Some(guard) = &mut self.guard {
            return guard.choose(write);
        }
        self.state.canvas.commit(write, self.step);
        effects.push(Effect::Commit {
            offset,
            token,
            probability,
            kind,
        });
    }

    /// Cuts the canvas behind the leftmost stop token that this step committed.
    fn prune(&mut self, born: usize, effects: &mut Vec<Effect>) {
        let stop = effects[born..].iter().find_map(|effect| match effect {
            Effect::Commit { offset, token, .. } if self.state.canvas.is_stop(*token) => {
                Some(*offset)
            }
            _ => None,
        });
        if let Some(offset) = stop
            && offset + 1 < self.state.canvas.len()
        {
            self.state.canvas.shorten(offset + 1);
            effects.push(Effect::Shorten { len: offset + 1 });
        }
    }

    fn emit(&mut self, effects: &mut Vec<Effect>) {
        let (fresh, stopped) = self.state.canvas.advance();
        if !fresh.is_empty() {
            effects.push(Effect::Advance {
                from: fresh.start,
                to: fresh.end,
            });
        }
        let full = self.state.canvas.frontier() == self.state.canvas.len();
        let exhausted = self.state.tree.active().is_empty();
        let over = self.guard.as_ref().is_some_and(Guard::is_over);
        let reason = match (stopped, full) {
            (true, _) if full || exhausted || self.early_stop => DoneReason::StopToken,
            _ if self.failure.is_some() => DoneReason::Failed,
            _ if over => DoneReason::Complete,
            (_, true) => DoneReason::Budget,
            _ if exhausted => DoneReason::LaneBudget,
            _ => return,
        };
        self.end(reason, effects);
    }

    fn end(&mut self, reason: DoneReason, effects: &mut Vec<Effect>) {
        self.done = Some(reason);
        self.state.tree.drop_active();
        effects.push(Effect::Done { reason });
    }
}

/// The proposals whose offset lies in `range`.
fn within(proposals: &[Proposal], range: Range<u32>) -> &[Proposal] {
    let from = proposals.partition_point(|proposal| proposal.offset < range.start);
    let to = proposals.partition_point(|proposal| proposal.offset < range.end);
    &proposals[from..to.max(from)]
}
