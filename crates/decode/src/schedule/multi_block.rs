//! Several blocks at once (d3LLM-TF multi-block decoding): the next block opens early.

use alloc::vec::Vec;
use core::ops::Range;

use super::{LaneSchedule, State};
use crate::effect::Effect;

/// One lane over all open blocks. A block is appended once the last one is filled to
/// `add_threshold`; the first one leaves the lane once it is full, and has a commit in every
/// step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiBlock {
    block_length: u32,
    add_threshold: f64,
}

impl MultiBlock {
    /// `block_length` B, at least 1; `add_threshold` in `0.0..=1.0`.
    pub fn new(block_length: u32, add_threshold: f64) -> Self {
        Self {
            block_length: block_length.max(1),
            add_threshold,
        }
    }

    /// Whether the last block of the lane `range` is filled far enough.
    fn appends(&self, state: &State, range: &Range<u32>) -> bool {
        let length = (range.end - range.start - 1) % self.block_length + 1;
        let last = range.end - length..range.end;
        let filled = f64::from(length - state.canvas.masks(last));
        filled >= self.add_threshold * f64::from(length)
    }
}

impl LaneSchedule for MultiBlock {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.block_length, effects);
    }

    fn owed(&self, state: &State) -> Range<u32> {
        state
            .tree
            .generate()
            .map_or(0..0, |lane| lane.start..lane.start + self.block_length)
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        while let Some(lane) = state.tree.generate() {
            let (id, len) = (lane.id, state.canvas.len());
            let range = lane.start..lane.range().end.min(len);
            let first = range.start..(range.start + self.block_length).min(range.end);
            if state.canvas.first_uncommitted(first.clone()).is_some() {
                if range.end < len && self.appends(state, &range) {
                    let end = (range.end + self.block_length).min(len);
                    state.resize_lane(id, end - range.start, effects);
                }
                return;
            }
            state.finish_lane(id, first.end - first.start, effects);
            if first.end < len {
                let end = range.end.max((first.end + self.block_length).min(len));
                state.start_block(id, first.end..end, effects);
            }
        }
    }
}
