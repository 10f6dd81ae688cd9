//! Block-wise schedule (LLaDA §2.4, Fast-dLLM): one block at a time, left to right.

use alloc::vec::Vec;

use super::{LaneSchedule, State};
use crate::effect::Effect;

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
        state.start_root(self.block_length - state.phase % self.block_length, effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.follow_block(self.block_length, effects);
    }
}
