//! The lanes of a traced sequence, updated step by step.

use decode::{Birth, Decoder, Effect, Input, LaneId, Role};
use engine::StepTrace;
use serde::Serialize;
use step::Attention;

/// One lane as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// Its number in order of creation; the root is 0.
    pub id: u32,
    /// The lane that forked or spawned it; null for the root.
    pub parent: Option<u32>,
    /// `generate` or `refine`.
    pub role: &'static str,
    /// First offset.
    pub start: u32,
    /// Number of owned offsets; of a finished lane, the valid ones.
    pub len: u32,
    /// Steps it took part in.
    pub clock: u32,
    /// Its state.
    pub state: LaneState,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneState {
    /// Active, or waiting for its sibling.
    Active,
    /// Replaced by its children.
    Forked,
    /// Finished.
    Finished,
}

/// All lanes by number, and which of them changed.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    changed: Vec<bool>,
}

impl Lanes {
    /// The lanes of a sequence before its first step, the same as in the engine.
    pub fn new(request: &engine::Request, limits: &engine::Limits) -> Self {
        let mut births = Vec::new();
        let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
        let given = count(request.prompt.len() + request.given.suffix.len());
        // As the engine does: the first block begins before the first token of the answer.
        let phase = match limits.attention {
            Attention::Blocks(length) => count(request.prompt.len()) % length.max(1),
            _ => 0,
        };
        let budget = limits.budget(given, request.max_tokens, &request.decoding);
        let input = Input {
            code_prompt: request.code_prompt,
            phase,
            lead: limits.lead(&request.decoding),
            pins: &request.given.pins,
            constraint: request.constraint.clone(),
            ..Input::new(budget, &request.stop_tokens)
        };
        Decoder::new(&request.decoding.decoder, input, &mut births);
        let mut lanes = Self::default();
        lanes.follow(&births);
        lanes
    }

    /// Applies one step.
    pub fn step(&mut self, step: &StepTrace) {
        for id in &step.lanes {
            self.change(*id, |lane| lane.clock += 1);
        }
        self.follow(&step.effects);
    }

    /// The lanes that changed since the last call, by number.
    pub fn take_changed(&mut self) -> Vec<Lane> {
        let changed = self.changed.iter_mut().map(std::mem::take);
        let lanes = self.lanes.iter().zip(changed);
        lanes.filter_map(|(lane, changed)| changed.then_some(*lane)).collect()
    }

    fn follow(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Start { lane, role, parent, start, len, birth } => self.push(Lane {
                    id: lane.0,
                    parent: parent.map(|parent| parent.0),
                    role: match role {
                        Role::Generate => "generate",
                        Role::Refine => "refine",
                    },
                    start: start.get(),
                    len,
                    clock: 0,
                    state: match birth {
                        Birth::Active | Birth::Waiting => LaneState::Active,
                        Birth::Finished => LaneState::Finished,
                    },
                }),
                Effect::Fork { lane, .. } => {
                    self.change(lane, |lane| lane.state = LaneState::Forked);
                }
                Effect::Resize { lane, len } => self.change(lane, |lane| lane.len = len),
                Effect::Finish { lane, valid } => self.change(lane, |lane| {
                    lane.state = LaneState::Finished;
                    lane.len = valid;
                }),
                Effect::Done { .. } => self.finish_all(),
                Effect::Commit(_)
                | Effect::Place(_)
                | Effect::Revoke { .. }
                | Effect::Shorten { .. }
                | Effect::Wake { .. }
                | Effect::Advance(_) => {}
            }
        }
    }

    fn push(&mut self, lane: Lane) {
        self.lanes.push(lane);
        self.changed.push(true);
    }

    fn change(&mut self, id: LaneId, change: impl FnOnce(&mut Lane)) {
        let index = id.index();
        if let (Some(lane), Some(changed)) =
            (self.lanes.get_mut(index), self.changed.get_mut(index))
        {
            change(lane);
            *changed = true;
        }
    }

    fn finish_all(&mut self) {
        for (lane, changed) in self.lanes.iter_mut().zip(&mut self.changed) {
            if lane.state == LaneState::Active {
                lane.state = LaneState::Finished;
                *changed = true;
            }
        }
    }
}
