//! Lane schedules: which lanes exist and run, when one forks, spawns a successor or stops.

mod adaptive_block;
mod asynclane;
mod block_wise;
mod canvases;
mod info;
mod multi_block;
mod prompt_lookup;
mod speculative;
mod streaming;
mod window;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::candidate::Proposal;
use crate::canvas::Canvas;
use crate::coordinates::{Offset, Span};
use crate::effect::{Birth, Effect, LaneId, Role};
use crate::lane::{Lane, LaneTree, Status};
use crate::token_class::TokenClasses;

pub use asynclane::AsyncLaneConfig;
pub use info::{ScheduleConfig, ScheduleInfo, Shape};

/// Every lane schedule, in the order in which requests fall back to them.
pub const SCHEDULES: &[&ScheduleInfo] = &[
    &asynclane::INFO,
    &block_wise::INFO,
    &adaptive_block::INFO,
    &multi_block::INFO,
    &window::INFO,
    &streaming::INFO,
    &speculative::INFO,
    &prompt_lookup::INFO,
    &canvases::INFO,
];

/// The imports of a schedule's file.
mod prelude {
    pub(super) use alloc::boxed::Box;
    pub(super) use alloc::vec::Vec;

    pub(super) use super::{LaneSchedule, ScheduleInfo, Shape, State};
    pub(super) use crate::candidate::Proposal;
    pub(super) use crate::coordinates::{Offset, Span, as_count, as_index};
    pub(super) use crate::describe::AttentionKind;
    pub(super) use crate::effect::Effect;
    pub(super) use crate::lane::Lane;
    pub(super) use crate::settings::SettingInfo;
}

/// The state that a schedule reads and changes.
#[derive(Clone, Debug)]
pub struct State {
    /// The generated tokens.
    pub canvas: Canvas,
    /// The lanes.
    pub tree: LaneTree,
    /// Delimiter facts of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// The prompt is code-shaped.
    pub code_prompt: bool,
    /// Positions before offset 0 in its block.
    pub phase: u32,
    /// Length of the model's blocks where the first position of one is a lane of its own.
    pub lead: Option<u32>,
}

/// Decides which lanes exist. Called once at the start and once after every step's commits.
pub trait LaneSchedule: core::fmt::Debug + Send {
    /// Starts the root lane.
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>);

    /// Forks, finishes, spawns and wakes lanes after a step's commits; clocks already count the
    /// step.
    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>);

    /// Looks at a step's proposals before its commits.
    fn observe(&mut self, _state: &mut State, _proposals: &[Proposal], _: &mut Vec<Effect>) {}

    /// The first offsets, beginning at `start` or later, of which a step must commit at least one mask.
    fn must_commit(&self, _state: &State, _start: Offset) -> Option<Span<Offset>> {
        None
    }

    /// Returns true if a step in which the rule chose nothing commits the worthiest mask of the lane, wherever
    /// it lies; else it commits what [`Self::must_commit`] asks for alone, one mask at least.
    fn commits_anywhere(&self) -> bool {
        true
    }

    /// The positions after `lane` that are scored as right context, empty for most schedules.
    fn lookahead(&self, lane: &Lane) -> Span<Offset> {
        let end = lane.range().end;
        end.to(end)
    }

    /// The confidence that commits a mask of the lookahead as a draft; `None` = no drafts.
    fn draft_threshold(&self) -> Option<f64> {
        None
    }

    /// Returns true if the rows of a lane see no mask after its lookahead between two full forwards.
    fn drops_far_masks(&self) -> bool {
        false
    }

    /// Returns true if a forward renews the K/V of masks and of the tokens committed since the lane's first
    /// step alone; else those of all offsets of the lane.
    fn renews_cycle(&self) -> bool {
        false
    }

    /// Returns true if every token is forwarded after its commit, also one to the right of the lanes: the exact
    /// cache does so until a token is left of the frontier.
    fn forwards_commits(&self) -> bool {
        false
    }

    /// Most drafts that a step verifies after its only lane; 0 for most schedules.
    fn drafts(&self) -> u32 {
        0
    }

    /// Stops forking for good; called before [`Self::start`] where the text must follow a grammar.
    fn forbid_forks(&mut self) {}
}

/// A lane about to be born.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewLane {
    pub(crate) role: Role,
    pub(crate) parent: Option<LaneId>,
    pub(crate) range: Span<Offset>,
    pub(crate) birth: Birth,
}

impl State {
    /// Starts a lane and reports it.
    pub(crate) fn start_lane(&mut self, new: NewLane, effects: &mut Vec<Effect>) -> LaneId {
        let NewLane { role, parent, range, birth } = new;
        let status = match birth {
            Birth::Active => Status::Active,
            Birth::Waiting => Status::Waiting,
            Birth::Finished => Status::Finished,
        };
        let (start, len) = (range.start, range.len());
        let lane = self.tree.add(role, parent, range, status);
        effects.push(Effect::Start { lane, role, parent, start, len, birth });
        lane
    }

    /// Starts the first generate lane, `[0, block_length)`.
    pub(crate) fn start_root(&mut self, block_length: u32, effects: &mut Vec<Effect>) {
        let range = Span::first(block_length.min(self.canvas.len()));
        let root = NewLane { role: Role::Generate, parent: None, range, birth: Birth::Active };
        self.start_lane(root, effects);
    }

    /// Starts the generate lane that follows `parent`.
    pub(crate) fn start_block(
        &mut self,
        parent: LaneId,
        range: Span<Offset>,
        effects: &mut Vec<Effect>,
    ) {
        let next =
            NewLane { role: Role::Generate, parent: Some(parent), range, birth: Birth::Active };
        self.start_lane(next, effects);
    }

    /// Finishes the generate lane once it is full and starts the block of `length` offsets after
    /// it, if any are left, and so on; whether a block was started.
    pub(crate) fn follow_block(&mut self, length: u32, effects: &mut Vec<Effect>) -> bool {
        self.follow(|_, _| length, effects)
    }

    /// As [`Self::follow_block`], with the length of the block that begins at an offset.
    pub(crate) fn follow(
        &mut self,
        length: impl Fn(&Self, Offset) -> u32,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut started = false;
        while let Some(lane) = self.tree.generate() {
            let (id, range, last) = (lane.id, lane.range(), self.canvas.end());
            if self.canvas.first_uncommitted(range).is_some() {
                break;
            }
            let end = range.end.min(last);
            self.finish_lane(id, end.distance_from(range.start), effects);
            if end < last {
                let next = end.plus(length(self, end));
                self.start_block(id, end.to(next.min(last)), effects);
                started = true;
            }
        }
        started
    }

    /// Moves the end of an active lane and reports it, if it moves.
    pub(crate) fn resize_lane(&mut self, lane: LaneId, len: u32, effects: &mut Vec<Effect>) {
        if self.tree.get(lane).len != len {
            self.tree.set_len(lane, len);
            effects.push(Effect::Resize { lane, len });
        }
    }

    /// Finishes `lane` with `valid` offsets and reports it.
    pub(crate) fn finish_lane(&mut self, lane: LaneId, valid: u32, effects: &mut Vec<Effect>) {
        self.tree.set_len(lane, valid);
        self.tree.set_status(lane, Status::Finished);
        effects.push(Effect::Finish { lane, valid });
    }
}
