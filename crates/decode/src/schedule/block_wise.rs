//! Block-wise schedule (LLaDA §2.4, Fast-dLLM): one block at a time, left to right.

use alloc::vec::Vec;

use super::{LaneSchedule, NewLane, State};
use crate::effect::{Birth, Effect, Role};

/// A generate lane of `block_length` offsets; its successor starts when no mask is left in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWise {
    block_length: u32,
}

impl BlockWise {
    /// `block_length` B, at least 1.
    pub fn new(block_length: u32) -> Self {
        Self {
            block_length: block_length.max(1),
        }
    }
}

impl LaneSchedule for BlockWise {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.block_length, effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let Some(lane) = state.tree.generate() else {
            return;
        };
        let (id, range) = (lane.id, lane.range());
        if state.canvas.first_mask(range.clone()).is_some() {
            return;
        }
        let end = range.end.min(state.canvas.len());
        state.finish_lane(id, end - range.start, effects);
        if end < state.canvas.len() {
            let range = end..(end + self.block_length).min(state.canvas.len());
            let (role, parent, birth) = (Role::Generate, Some(id), Birth::Active);
            state.start_lane(
                NewLane {
                    role,
                    parent,
                    range,
                    birth,
                },
                effects,
            );
        }
    }
}
