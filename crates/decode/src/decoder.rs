//! One sequence's decoding state: candidates in, effects out.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::Canvas;
use crate::commit::{self, CommitRule};
use crate::config::DecoderConfig;
use crate::effect::{CommitKind, DoneReason, Effect, LaneId, Role};
use crate::lane::{LaneTree, Status};
use crate::schedule::{self, LaneSchedule, State};
use crate::token_class::TokenClasses;

/// What a decoder needs to know of its sequence.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// L, the generation budget.
    pub budget: u32,
    /// E, the stop set.
    pub stops: &'a [TokenId],
    /// Delimiter facts of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// The prompt is code-shaped.
    pub code_prompt: bool,
}

/// The state machine of one sequence. Pure: the same proposals give the same effects.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    schedule: Box<dyn LaneSchedule>,
    rule: Box<dyn CommitRule>,
    prune: bool,
    early_stop: bool,
    step: u32,
    done: bool,
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
        let mut decoder = Self {
            state: State {
                canvas: Canvas::new(input.budget, input.stops),
                tree: LaneTree::default(),
                classes: input.classes,
                code_prompt: input.code_prompt,
            },
            schedule: schedule::build(&config.schedule),
            rule: commit::build(&config.commit),
            prune: config.prune,
            early_stop: config.early_stop,
            step: 0,
            done: input.budget == 0,
            masks: Vec::new(),
            chosen: Vec::new(),
        };
        if decoder.done {
            effects.push(Effect::Done {
                reason: DoneReason::Budget,
            });
        } else {
            decoder.schedule.start(&mut decoder.state, effects);
        }
        decoder
    }

    /// Steps applied.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Whether the sequence needs no further step.
    pub fn is_done(&self) -> bool {
        self.done
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
        for index in 0..self.state.tree.active().len() {
            let id = self.state.tree.active()[index];
            self.commit_lane(id, proposals, effects);
        }
        self.commit_drafts(proposals, effects);
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
        self.rule.select(&self.masks, &mut self.chosen);
        if self.chosen.is_empty() {
            self.chosen.push(commit::most_confident(&self.masks));
        }
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
        self.state
            .canvas
            .commit(offset, candidate.token, self.step, kind);
        let (token, probability) = (candidate.token, candidate.probability);
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
        if full || exhausted || (stopped && self.early_stop) {
            self.done = true;
            self.state.tree.drop_active();
            let reason = match (stopped, full) {
                (true, _) => DoneReason::StopToken,
                (false, true) => DoneReason::Budget,
                (false, false) => DoneReason::LaneBudget,
            };
            effects.push(Effect::Done { reason });
        }
    }
}

/// The proposals whose offset lies in `range`.
fn within(proposals: &[Proposal], range: Range<u32>) -> &[Proposal] {
    let from = proposals.partition_point(|proposal| proposal.offset < range.start);
    let to = proposals.partition_point(|proposal| proposal.offset < range.end);
    &proposals[from..to.max(from)]
}
