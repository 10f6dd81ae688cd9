//! AsyncLane schedule (arXiv 2606.08411, Alg. 1): a lane forks at a boundary; one child refines, the other continues.

use super::NewLane;
use super::prelude::*;
use crate::boundary::{Boundary, Finder, NumericPeriod};
use crate::effect::{Birth, LaneId, Role};
use crate::lane::Status;
use crate::settings::{Settings, UNBOUNDED};

/// B.
const BLOCK_LENGTH: SettingInfo =
    SettingInfo::integer("block_length", 1..=1024, 32).says("positions of a generate lane");
/// w.
const LOOKAHEAD: SettingInfo = SettingInfo::integer("lookahead", 0..=256, 32)
    .says("positions after the generate lane that are scored and may be drafted");
/// τ_draft.
const DRAFT_THRESHOLD: SettingInfo = SettingInfo::number("draft_threshold", 0.0..=1.0, 0.9)
    .says("confidence that a draft in the lookahead needs");
const FORK: SettingInfo =
    SettingInfo::name("fork", &["auto", "sentence", "prose", "newline", "off"], "auto")
        .says("where lanes fork; auto: at newlines in code, at sentences elsewhere; prose: at sentences, but not in code");
const NUMERIC: SettingInfo = SettingInfo::name("numeric", &["next", "strict"], "next")
    .says("next: the next token decides whether a full stop after a digit ends a sentence; strict: it never does");
/// ρ_min.
const MIN_FILL: SettingInfo = SettingInfo::number("min_fill", 0.0..=1.0, 0.5)
    .says("fraction of the lane that must be filled before it forks");
/// t_min.
const MIN_CLOCK: SettingInfo = SettingInfo::integer("min_clock", 0..=UNBOUNDED, 2)
    .says("steps that a lane needs before it forks");
const MAX_LANES: SettingInfo = SettingInfo::integer("max_lanes", 1..=32, 16)
    .says("largest number of active lanes; a further fork waits");
const FORK_WHEN_COMPLETE: SettingInfo = SettingInfo::flag("fork_when_complete", true)
    .says("a full lane also forks at its last delimiter");
/// t = budget.
const LANE_BUDGET: SettingInfo = SettingInfo::flag("lane_budget", false).says(
    "a generate lane that a stop token shortened ends after as many steps as it has positions left",
);
/// γ_f.
const FORK_ENTROPY: SettingInfo =
    SettingInfo::number("fork_entropy", 0.0..=f64::MAX, 0.0).derived("no limit").says(
        "largest sum, in nats, of the entropies of the masks that a fork leaves to its refine lane",
    );
const COUPLED: SettingInfo = SettingInfo::flag("coupled", false)
    .says("a continuation waits until its refine lane has finished");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "asynclane",
    summary: "lanes that fork at the end of a sentence: one refines it, one continues",
    paper: "AsyncLane, arXiv 2606.08411",
    differs: "",
    settings: &[
        BLOCK_LENGTH,
        LOOKAHEAD,
        DRAFT_THRESHOLD,
        FORK,
        NUMERIC,
        MIN_FILL,
        MIN_CLOCK,
        MAX_LANES,
        FORK_WHEN_COMPLETE,
        FORK_ENTROPY,
        LANE_BUDGET,
        COUPLED,
    ],
    attention: AttentionKind::SEVERAL,
    shape: Shape {
        max_lanes: |settings| settings.count(&MAX_LANES),
        reach: |settings| settings.count(&BLOCK_LENGTH) + settings.count(&LOOKAHEAD),
        ..Shape::ONE_LANE
    },
    build: |settings| {
        Box::new(AsyncLane { config: AsyncLaneConfig::read(settings), entropies: Vec::new() })
    },
};

/// Parameters of the AsyncLane schedule. The paper prints none of these constants; defaults
/// are in [`INFO`] and in the presets of the crate `engine`.
#[derive(Clone, Debug, PartialEq)]
pub struct AsyncLaneConfig {
    /// B: length of a generate lane, `>= 1`.
    pub block_length: u32,
    /// w: positions after the generate lane that are scored and may be drafted.
    pub lookahead: u32,
    /// τ_draft: confidence a draft needs; `None` commits no drafts.
    pub draft_threshold: Option<f64>,
    /// Where a generate lane may fork; `None` = never.
    pub fork: Option<Boundary>,
    /// ρ_min: fraction of the lane that must be filled before it forks, in `0.0..=1.0`.
    pub min_fill: f64,
    /// t_min: steps the lane must have run before it forks.
    pub min_clock: u32,
    /// True if a lane that is already full forks at its last delimiter too.
    pub fork_when_complete: bool,
    /// γ_f: most nats that the entropies of the masks in the refine lane may sum to, `>= 0`; `None` =
    /// no limit.
    pub fork_entropy: Option<f64>,
    /// Most lanes active at once, `>= 1`; a fork that would exceed it waits.
    pub max_lanes: u32,
    /// True if a generate lane ends after as many steps as it has offsets left on a canvas that
    /// was cut, whatever is still open in it (§3.1, t = budget); if that is its first offset,
    /// generation ends there. Without it such a lane goes on until it is complete.
    pub lane_budget: bool,
    /// Ablation: the continuation waits until its refine lane has finished.
    pub coupled: bool,
}

impl AsyncLaneConfig {
    /// The parameters that the settings of the schedule say. A `draft_threshold` above 1 commits
    /// no drafts.
    pub fn read(settings: &Settings) -> Self {
        let numeric = match settings.name(&NUMERIC) {
            "strict" => NumericPeriod::Strict,
            _ => NumericPeriod::Next,
        };
        Self {
            block_length: settings.count(&BLOCK_LENGTH),
            lookahead: settings.count(&LOOKAHEAD),
            draft_threshold: Some(settings.number(&DRAFT_THRESHOLD)).filter(|least| *least <= 1.0),
            fork: match settings.name(&FORK) {
                "off" => None,
                "sentence" => Some(Boundary::Sentence(numeric)),
                "prose" => Some(Boundary::Prose(numeric)),
                "newline" => Some(Boundary::Newline),
                _ => Some(Boundary::Auto(numeric)),
            },
            min_fill: settings.number(&MIN_FILL),
            min_clock: settings.count(&MIN_CLOCK),
            fork_when_complete: settings.flag(&FORK_WHEN_COMPLETE),
            fork_entropy: settings.value(&FORK_ENTROPY).and_then(|value| value.as_number()),
            max_lanes: settings.count(&MAX_LANES),
            lane_budget: settings.flag(&LANE_BUDGET),
            coupled: settings.flag(&COUPLED),
        }
    }
}

/// A generate lane advances; where its known text holds a delimiter it forks into a refine lane
/// that finishes the prefix and a continuation that goes on right away.
#[derive(Debug)]
struct AsyncLane {
    config: AsyncLaneConfig,
    /// Entropies of the last candidates by offset, in nats; empty where no fork asks for them.
    entropies: Vec<f32>,
}

impl LaneSchedule for AsyncLane {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        if self.config.fork_entropy.is_some() {
            self.entropies.resize(as_index(state.canvas.budget()), 0.0);
        }
        state.start_root(self.config.block_length, effects);
    }

    fn observe(&mut self, _state: &mut State, proposals: &[Proposal], _: &mut Vec<Effect>) {
        for proposal in proposals {
            if let Some(entropy) = self.entropies.get_mut(proposal.offset.index()) {
                *entropy = proposal.candidate.entropy;
            }
        }
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let mut step = Advance { config: &self.config, entropies: &self.entropies, state, effects };
        step.finish_refined();
        let Some(lane) = step.state.tree.generate() else {
            return;
        };
        let id = lane.id;
        match step.split(lane) {
            Some(split) => step.fork(id, split),
            None => step.settle(id),
        }
    }

    fn lookahead(&self, lane: &Lane) -> Span<Offset> {
        let end = lane.range().end;
        match lane.role {
            Role::Generate => Span::at(end, self.config.lookahead),
            Role::Refine => end.to(end),
        }
    }

    fn draft_threshold(&self) -> Option<f64> {
        self.config.draft_threshold
    }

    fn forbid_forks(&mut self) {
        self.config.fork = None;
    }
}

/// Alg. 1 of one step, after the commits.
struct Advance<'a> {
    config: &'a AsyncLaneConfig,
    entropies: &'a [f32],
    state: &'a mut State,
    effects: &'a mut Vec<Effect>,
}

impl Advance<'_> {
    /// Finishes refine lanes without masks, wakes continuations that waited for them.
    fn finish_refined(&mut self) {
        let mut index = 0;
        while let Some(&id) = self.state.tree.active().get(index) {
            let lane = self.state.tree.get(id);
            let open = self.state.canvas.first_uncommitted(lane.range()).is_some();
            if lane.role == Role::Generate || open {
                index += 1;
                continue;
            }
            let (parent, len) = (lane.parent, lane.len);
            self.state.finish_lane(id, len, self.effects);
            let sibling = parent.and_then(|parent| self.state.tree.get(parent).children[1]);
            if let Some(lane) = sibling
                && self.state.tree.get(lane).status == Status::Waiting
            {
                self.state.tree.set_status(lane, Status::Active);
                self.effects.push(Effect::Wake { lane });
            }
        }
    }

    /// p of the fork condition (AsyncLane §3.2), if it holds for `lane`.
    fn split(&self, lane: &Lane) -> Option<u32> {
        let boundary = self.config.fork?;
        let canvas = &self.state.canvas;
        let range = lane.range().clip(canvas.end());
        let len = range.len();
        let filled = len - canvas.masks(range);
        if len == 0
            || f64::from(filled) < self.config.min_fill * f64::from(len)
            || lane.clock < self.config.min_clock
            || (!self.config.fork_when_complete && self.is_complete(range))
        {
            return None;
        }
        let code = self.state.code_prompt;
        let finder = Finder { canvas, classes: &self.state.classes, boundary, code };
        let split = finder.last(range)?.next().distance_from(range.start);
        let prefix = Span::at(range.start, split);
        let most = self.config.fork_entropy;
        if most.is_some_and(|most| self.entropy(prefix) > most) {
            return None;
        }
        let refines = canvas.first_uncommitted(prefix).is_some();
        let room = as_count(self.state.tree.active().len()) < self.config.max_lanes;
        (room || !refines).then_some(split)
    }

    /// Sum of the entropies of the masks in `range`, in nats.
    fn entropy(&self, range: Span<Offset>) -> f64 {
        let masks = range.iter().filter(|offset| self.state.canvas.is_mask(*offset));
        let entropies = masks.filter_map(|offset| self.entropies.get(offset.index()));
        entropies.map(|entropy| f64::from(*entropy)).sum()
    }

    /// Turns the lane into an inner node with a refine child of `split` offsets and, if offsets
    /// are left behind it, a continuation.
    fn fork(&mut self, id: LaneId, split: u32) {
        let start = self.state.tree.get(id).start;
        let prefix = Span::at(start, split);
        self.state.tree.set_status(id, Status::Forked);
        self.effects.push(Effect::Fork { lane: id, split });
        let open = self.state.canvas.first_uncommitted(prefix).is_some();
        let birth = if open { Birth::Active } else { Birth::Finished };
        let refine = NewLane { role: Role::Refine, parent: Some(id), range: prefix, birth };
        self.state.start_lane(refine, self.effects);
        if prefix.end < self.state.canvas.end() {
            self.start_generate(id, prefix.end, open && self.config.coupled);
        }
    }

    /// Starts a generate lane; one that drafts have filled already finishes at once.
    fn start_generate(&mut self, parent: LaneId, start: Offset, waits: bool) {
        let all = Span::at(start, self.config.block_length).clip(self.state.canvas.end());
        let (range, birth) = if waits {
            (all, Birth::Waiting)
        } else if self.is_complete(all) {
            let valid = start.to(self.state.canvas.first_open(all));
            (valid, Birth::Finished)
        } else {
            (all, Birth::Active)
        };
        let generate = NewLane { role: Role::Generate, parent: Some(parent), range, birth };
        let lane = self.state.start_lane(generate, self.effects);
        if birth == Birth::Finished {
            self.spawn(lane);
        }
    }

    /// Finishes the generate lane if it is complete, or (`lane_budget`) has run as many steps as it
    /// has offsets left on a canvas that was cut, and starts its successor. A lane whose budget ran
    /// out before its first offset was settled has none: generation ends there (§3.1, v = 0).
    fn settle(&mut self, id: LaneId) {
        let lane = self.state.tree.get(id);
        let (range, clock) = (lane.range(), lane.clock);
        let end = range.end.min(self.state.canvas.end());
        let len = end.distance_from(range.start);
        let spent = self.config.lane_budget && clock >= len;
        if self.is_complete(range) || spent {
            let open = self.state.canvas.first_open(range);
            let valid = open.distance_from(range.start);
            self.state.finish_lane(id, valid, self.effects);
            if valid > 0 {
                self.spawn(id);
            }
        }
    }

    /// Starts the successor of a finished generate lane, unless generation has ended with it.
    fn spawn(&mut self, id: LaneId) {
        let end = self.state.tree.get(id).range().end;
        let ended = end >= self.state.canvas.end() || self.state.canvas.is_stop_at(end);
        if !ended {
            self.start_generate(id, end, false);
        }
    }

    /// No mask before the end of `range` or before its first stop token.
    fn is_complete(&self, range: Span<Offset>) -> bool {
        let canvas = &self.state.canvas;
        let open = canvas.first_open(range);
        open >= range.end.min(canvas.end()) || canvas.is_stop_at(open)
    }
}
