//! The decoding state of one sequence: candidates in, effects out.

mod commits;
mod drafts;
mod expected;
mod forward;
mod input;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::Canvas;
use crate::commit::{CommitInput, CommitRule, Verification};
use crate::config::DecoderConfig;
use crate::constraint::Failure;
use crate::coordinates::{Offset, as_index};
use crate::effect::{DoneReason, Effect};
use crate::guard::{Guard, Walk};
use crate::lane::LaneTree;
use crate::schedule::{LaneSchedule, State};

use expected::Expected;

pub use forward::LaneView;
pub use input::Input;

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
    /// Guesses from an expected text, for the next step.
    expected: Expected,
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
    /// The step that commits every scored mask.
    last_step: Option<u32>,
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

impl Decoder {
    /// A decoder before its first step: [`Self::closed`] and [`Self::open`] in one.
    pub fn new(config: &DecoderConfig, input: Input<'_>, effects: &mut Vec<Effect>) -> Self {
        let mut decoder = Self::closed(config, input);
        decoder.open(effects);
        decoder
    }

    /// A decoder that has no lane yet and has not asked its grammar; [`Self::open`] must follow.
    pub fn closed(config: &DecoderConfig, input: Input<'_>) -> Self {
        let canvas = Canvas::new(input.budget, input.stops, input.pins);
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
                block_length: length.and_then(|value| value.as_count()),
            }),
            options: Options {
                prune: config.prune,
                early_stop: config.early_stop || guard.is_some(),
                lone_stops: config.lone_stops,
                first_alone: input.first_alone,
                limit: input.limit,
                last_step: config.max_steps,
            },
            guard,
            step: 0,
            done: None,
            failure: None,
            drafts: Vec::new(),
            expected: Expected::new(config.expected),
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
        let asked = guard.map_or(Ok(()), |guard| guard.begin(canvas));
        self.failure = asked.err().map(Failure::from);
        if self.failure.is_some() {
            self.end(DoneReason::Failed, effects);
        } else if self.guard.as_ref().is_some_and(Guard::is_over) {
            self.end(DoneReason::Complete, effects);
        } else if canvas.is_empty() {
            self.end(DoneReason::Budget, effects);
        } else {
            self.schedule.start(&mut self.state, effects);
            if self.state.canvas.frontier() > Offset::ZERO {
                // Lanes of given tokens alone need no forward.
                self.schedule.advance(&mut self.state, effects);
            }
        }
    }

    /// Returns true if a grammar constrains the tokens.
    pub fn is_constrained(&self) -> bool {
        self.guard.is_some()
    }

    /// Number of steps applied.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Returns true if the sequence is done.
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

    /// Applies one step.
    ///
    /// `proposals` holds, by offset, one candidate for every mask of every active lane, for the
    /// masks of lookaheads with drafts, and for committed tokens where [`LaneView`] asks for them.
    /// The same list follows for every one of [`Self::branches`] that the forward tried; a branch
    /// begins where offsets stop ascending. The candidates of [`Self::guesses_to_check`] are given the
    /// guesses before.
    pub fn apply(&mut self, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let (mut proposals, branches) = commits::first_branch(proposals);
        let verification = self.remember_guesses(branches);
        let born = effects.len();
        self.step += 1;
        if verification == Verification::Sanctioned {
            proposals = self.climb(proposals, branches, effects);
        }
        self.take_step(proposals, born, effects);
        if verification == Verification::Equal {
            self.follow_branches(branches, born, effects);
        }
    }

    /// The step that `proposals` decide; `effects[born..]` are the commits that it has made.
    fn take_step(&mut self, proposals: &[Proposal], born: usize, effects: &mut Vec<Effect>) {
        let computed = match self.guard {
            Some(_) if self.schedule.forwards_commits() => Some(self.state.canvas.end()),
            Some(_) => self.lanes().map(|lane| lane.lookahead.end).max(),
            None => None,
        };
        self.schedule.observe(&mut self.state, proposals, effects);
        self.commit_lanes(proposals, effects);
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
            effects.push(Effect::Advance(fresh));
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
