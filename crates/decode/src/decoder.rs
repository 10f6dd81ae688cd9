//! The decoding state of one sequence: candidates in, effects out.

mod commits;
mod drafts;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::Canvas;
use crate::commit::{Branches, Checks, CommitInput, CommitRule, Denoising, Guesses, Verification};
use crate::config::DecoderConfig;
use crate::constraint::{Constraint, Failure};
use crate::coordinates::{Offset, Span, as_count, as_index};
use crate::effect::{DoneReason, Effect, LaneId, Role};
use crate::filter::Filter;
use crate::guard::{Guard, Walk};
use crate::lane::{Lane, LaneTree, Status};
use crate::schedule::{LaneSchedule, State};
use crate::token_class::TokenClasses;

/// The facts of a sequence that its decoder needs.
#[derive(Debug)]
pub struct Input<'a> {
    /// L: number of offsets to generate.
    pub budget: u32,
    /// The text ends after this number of offsets, although the last canvas may be longer.
    pub limit: u32,
    /// E: the stop set.
    pub stops: &'a [TokenId],
    /// Delimiter classes of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// Whether the prompt looks like code.
    pub code_prompt: bool,
    /// Positions left of offset 0 in its block, where blocks are counted from the prompt's first
    /// token. The first block of the block-wise schedule is shorter by this number.
    pub phase: u32,
    /// Length of the model's blocks, `>= 1`, for models that predict the first token of a block at
    /// the last row of the block before: the block-wise schedule commits that token before the
    /// rest of its block. `None` for other models.
    pub lead: Option<u32>,
    /// Whether the first step of every lane commits its first mask alone, unless the rule fills the
    /// canvas (Fast-dLLM on Dream).
    pub first_alone: bool,
    /// The grammar that the emitted tokens follow. It switches forks off: the border of a fork must
    /// be final.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The filter network trained for the model; a rule that needs one commits one mask per step
    /// without it.
    pub filter: Option<Arc<Filter>>,
    /// The sequence's seed, for rules whose order is drawn by chance.
    pub seed: u64,
}

impl<'a> Input<'a> {
    /// The facts of a sequence without a grammar, a filter, delimiters and a model's blocks.
    pub fn new(budget: u32, stops: &'a [TokenId]) -> Self {
        Self {
            budget,
            limit: budget,
            stops,
            classes: Arc::default(),
            code_prompt: false,
            phase: 0,
            lead: None,
            first_alone: false,
            constraint: None,
            filter: None,
            seed: 0,
        }
    }
}

/// The state machine of one sequence. It is pure: the same proposals give the same effects.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    schedule: Box<dyn LaneSchedule>,
    rule: Box<dyn CommitRule>,
    guard: Option<Guard>,
    options: Options,
    step: u32,
    done: Option<DoneReason>,
    failure: Option<Failure>,
    /// Drafts of a draft model from the frontier on, for the next step.
    drafts: Vec<TokenId>,
    scratch: Scratch,
}

/// The options of [`DecoderConfig`] and [`Input`] that hold for all steps.
#[derive(Clone, Copy, Debug)]
struct Options {
    prune: bool,
    early_stop: bool,
    lone_stops: bool,
    first_alone: bool,
    limit: u32,
}

/// Lists of one step.
#[derive(Debug)]
struct Scratch {
    /// The masks among which the rule chooses.
    masks: Vec<Proposal>,
    /// Indices of the chosen masks.
    chosen: Vec<usize>,
    /// The guesses that the forward tried, and the end of each branch among them.
    tried: Vec<Proposal>,
    tried_ends: Vec<usize>,
    /// The guesses that the forward checked.
    checked: Vec<Proposal>,
}

/// The computation that one active lane asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub id: LaneId,
    /// Its role; the rows of a refine lane ban the stop set.
    pub role: Role,
    /// Offsets it owns, clipped to the canvas.
    pub range: Span<Offset>,
    /// Offsets after it that are forwarded as right context, clipped to the canvas.
    pub lookahead: Span<Offset>,
    /// Whether the masks of the lookahead are scored, so that drafts may be committed.
    pub drafts: bool,
    /// Offsets whose committed tokens are scored as well, wherever the forward has their rows.
    pub committed: Span<Offset>,
    /// Committed tokens of earlier steps than this one keep their K/V between two full forwards; 0 if
    /// those of the lane are renewed in every forward.
    pub renewed_from: u32,
    /// End of what its rows see between two full forwards: that of the canvas for most schedules.
    pub horizon: Offset,
}

impl LaneView {
    /// The offsets whose masks are scored: its own, and the lookahead where drafts may be committed.
    pub fn scored(&self) -> Span<Offset> {
        match self.drafts {
            true => self.range.start.to(self.lookahead.end.max(self.range.end)),
            false => self.range,
        }
    }
}

impl Decoder {
    /// A decoder before its first step: [`Self::closed`] and [`Self::open`] in one.
    pub fn new(config: &DecoderConfig, input: Input<'_>, effects: &mut Vec<Effect>) -> Self {
        let mut decoder = Self::closed(config, input);
        decoder.open(effects);
        decoder
    }

    /// A decoder that has no lane yet and has not asked its grammar; [`Self::open`] must follow.
    pub fn closed(config: &DecoderConfig, input: Input<'_>) -> Self {
        let canvas = Canvas::new(input.budget, input.stops);
        let mut schedule = config.schedule.build();
        let guard = input.constraint.map(|constraint| {
            schedule.forbid_forks();
            Guard::new(constraint)
        });
        // Steps allocate nothing while no lane is longer than this.
        let room = as_index(input.budget.min(256));
        let length = config.schedule.settings().get("block_length");
        Self {
            state: State {
                canvas,
                tree: LaneTree::with_room(input.budget),
                classes: input.classes,
                code_prompt: input.code_prompt,
                phase: input.phase,
                lead: input.lead,
            },
            schedule,
            rule: config.commit.build(&CommitInput {
                filter: input.filter.as_ref(),
                seed: input.seed,
                block_length: length.and_then(|of| of.as_count()),
            }),
            options: Options {
                prune: config.prune,
                early_stop: config.early_stop || guard.is_some(),
                lone_stops: config.lone_stops,
                first_alone: input.first_alone,
                limit: input.limit,
            },
            guard,
            step: 0,
            done: None,
            failure: None,
            drafts: Vec::new(),
            scratch: Scratch {
                masks: Vec::with_capacity(room),
                chosen: Vec::with_capacity(room),
                tried: Vec::new(),
                tried_ends: Vec::new(),
                checked: Vec::new(),
            },
        }
    }

    /// Asks the grammar for the first tokens; `effects` receives the start of the first lane. With
    /// a budget of 0 the sequence is done.
    pub fn open(&mut self, effects: &mut Vec<Effect>) {
        let canvas = &self.state.canvas;
        let guard = self.guard.as_mut();
        let asked = guard.map_or(Ok(()), |guard| guard.look_ahead(canvas));
        self.failure = asked.err().map(Failure::from);
        if self.failure.is_some() {
            self.end(DoneReason::Failed, effects);
        } else if self.guard.as_ref().is_some_and(Guard::is_over) {
            self.end(DoneReason::Complete, effects);
        } else if canvas.is_empty() {
            self.end(DoneReason::Budget, effects);
        } else {
            self.schedule.start(&mut self.state, effects);
        }
    }

    /// Whether a grammar constrains the tokens.
    pub fn is_constrained(&self) -> bool {
        self.guard.is_some()
    }

    /// Number of steps applied.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Whether the sequence is done.
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// The reason for which the sequence is done; `None` while it is not.
    pub fn done(&self) -> Option<DoneReason> {
        self.done
    }

    /// The error behind [`DoneReason::Failed`].
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Under a grammar: the tokens allowed at the frontier, as a bit set (token t is bit `t % 32`
    /// of word `t / 32`). The candidate of the frontier must be one of them.
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
        let end = self.state.canvas.end();
        let reads = self.rule.reads();
        let drafted = as_count(self.drafts.len());
        let drafts = self.schedule.draft_threshold().is_some() || reads.canvas || drafted > 0;
        self.state.tree.active().iter().map(move |id| {
            let lane = self.state.tree.get(*id);
            let own_end = lane.range().end;
            let lookahead = match reads.canvas {
                _ if drafted > 0 => own_end.to(own_end.plus(drafted)),
                true => own_end.to(end),
                false => self.schedule.lookahead(lane),
            };
            let lookahead = lookahead.clip(end);
            LaneView {
                id: *id,
                role: lane.role,
                range: lane.range().clip(end),
                horizon: match self.schedule.drops_far_masks() {
                    true => lookahead.end,
                    false => end,
                },
                lookahead,
                drafts,
                committed: match reads.lane {
                    true => lane.range(),
                    false => reads.watched,
                }
                .clip(end),
                renewed_from: self.renewed_from(lane),
            }
        })
    }

    /// The step from which on the commits of a lane are renewed in the next forward.
    fn renewed_from(&self, lane: &Lane) -> u32 {
        match self.schedule.renews_cycle() {
            // The next forward is the first after the lane's first step: it renews that commit too.
            true => self.step + 1 - lane.clock + u32::from(lane.clock > 1),
            false => 0,
        }
    }

    /// How the next forward reads open offsets, for weights trained on noise.
    pub fn denoising(&self) -> Option<Denoising<'_>> {
        let canvas = self.state.tree.generate();
        self.rule.denoising(canvas.map_or(0, |lane| lane.clock))
    }

    /// Guessed canvases that the next forward may try; none under a grammar.
    pub fn branches(&self) -> Branches<'_> {
        let Guesses::Branches(all) = self.rule.guesses() else {
            return Branches::default();
        };
        let canvas = &self.state.canvas;
        // A guessed canvas would see the offsets that a stop token cuts off.
        let holds = |guess: &&Proposal| {
            let inside = guess.offset < canvas.end() && canvas.is_mask(guess.offset);
            inside && !canvas.is_stop(guess.candidate.token)
        };
        let count = all.proposals.iter().take_while(holds).count();
        if count == 0 || self.guard.is_some() {
            return Branches::default();
        }
        // A canvas without masks scores nothing.
        let masks: u32 = self.lanes().map(|lane| canvas.masks(lane.scored())).sum();
        let count = count.min(as_index(masks.saturating_sub(1)));
        let branches = all.ends.partition_point(|end| *end <= count);
        let ends = &all.ends[..branches];
        Branches {
            proposals: &all.proposals[..ends.last().copied().unwrap_or_default()],
            ends,
            ..all
        }
    }

    /// The guesses that the next forward checks, on consecutive offsets from the first mask of a lane
    /// on; `None` if the rule never has guesses checked.
    pub fn checks(&self) -> Option<Checks<'_>> {
        let Guesses::Checks(all) = self.rule.guesses() else {
            return None;
        };
        let canvas = &self.state.canvas;
        let open = |guess: &&Proposal| {
            self.guard.is_none() && guess.offset < canvas.end() && canvas.is_mask(guess.offset)
        };
        let open = &all.guesses[..all.guesses.iter().take_while(open).count()];
        // Tokens after a stop token are of no use.
        let stop = open
            .iter()
            .position(|guess| canvas.is_stop(guess.candidate.token));
        Some(Checks {
            guesses: &open[..stop.map_or(open.len(), |stop| stop + 1)],
            ..all
        })
    }

    /// The guesses of [`Self::checks`].
    pub fn guesses_to_check(&self) -> &[Proposal] {
        self.checks().map_or(&[], |checks| checks.guesses)
    }

    /// Whether the last forward checked guesses.
    pub fn has_checked(&self) -> bool {
        !self.scratch.checked.is_empty()
    }

    /// The offsets whose tokens the last forward computed as checked guesses that were right: they were
    /// forwarded behind the final tokens before them.
    pub fn confirmed(&self) -> Span<Offset> {
        let canvas = &self.state.canvas;
        let checked = &self.scratch.checked;
        let is_right = |guess: &&Proposal| {
            canvas.is_committed(guess.offset)
                && canvas.get(guess.offset) == Some(guess.candidate.token)
        };
        let count = as_count(checked.iter().take_while(is_right).count());
        Span::at(
            checked.first().map_or(Offset::ZERO, |guess| guess.offset),
            count,
        )
    }

    /// End of the furthest valid token of any unfinished lane: the maximum over lanes of s + v
    /// (AsyncLane eq. 12).
    pub fn effective_end(&self) -> Offset {
        let tree = &self.state.tree;
        // A waiting continuation is the last leaf, so it was started last.
        let waiting = tree
            .lanes()
            .last()
            .filter(|lane| lane.status == Status::Waiting);
        let lanes = tree.active().iter().map(|id| tree.get(*id)).chain(waiting);
        lanes
            .map(|lane| self.state.canvas.first_open(lane.range()))
            .max()
            .unwrap_or_default()
    }

    /// Applies one step.
    ///
    /// `proposals` holds, by offset, one candidate for every mask of every active lane, for the
    /// masks of lookaheads with drafts, and for committed tokens where [`LaneView`] asks for them.
    /// The same list follows for every one of [`Self::branches`] that the forward tried; a branch
    /// begins where offsets stop ascending. The candidates of [`Self::guesses_to_check`] are given the
    /// guesses before.
    pub fn apply(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        self.step += 1;
        let (mut proposals, branches) = commits::first_branch(proposals);
        let verification = self.remember_guesses(branches);
        let born = effects.len();
        let computed = match self.guard {
            Some(_) if self.schedule.forwards_commits() => Some(self.state.canvas.end()),
            Some(_) => self.lanes().map(|lane| lane.lookahead.end).max(),
            None => None,
        };
        if verification == Verification::Sanctioned {
            proposals = self.climb(proposals, branches, effects);
        }
        self.schedule.observe(&mut self.state, proposals, effects);
        self.commit_lanes(proposals, effects);
        if verification == Verification::Equal {
            self.commit_branches(branches, effects);
        }
        self.commit_verified(proposals, effects);
        self.fill(proposals, effects);
        self.commit_drafts(proposals, effects);
        if let Some(guard) = &mut self.guard {
            let walk = Walk {
                canvas: &mut self.state.canvas,
                step: self.step,
                end: computed.unwrap_or_default(),
                effects,
            };
            self.failure = guard.settle(walk, proposals).err();
        }
        let settled = self.guard.is_some() || self.rule.verdict().settled;
        if self.options.prune && settled {
            self.commit_expected_end(effects);
            self.prune(born, effects);
        }
        if settled {
            self.cut_at_limit(effects);
        }
        self.state.tree.tick();
        if settled {
            self.schedule.advance(&mut self.state, effects);
            self.emit(effects);
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
        let full = self.state.canvas.frontier() == self.state.canvas.end();
        let exhausted = self.state.tree.active().is_empty();
        let over = self.guard.as_ref().is_some_and(Guard::is_over);
        let reason = match (stopped, full) {
            (true, _) if full || exhausted || self.options.early_stop => DoneReason::StopToken,
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
