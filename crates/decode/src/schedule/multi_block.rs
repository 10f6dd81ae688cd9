//! Several blocks at once (d3LLM-TF multi-block decoding): the next block opens early.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LaneSchedule, ScheduleInfo, Shape, State};
use crate::coordinates::{Offset, Span};
use crate::describe::AttentionKind;
use crate::effect::Effect;
use crate::settings::SettingInfo;

/// B.
const BLOCK_LENGTH: SettingInfo =
    SettingInfo::integer("block_length", 1..=1024, 32).says("positions of a block");
const ADD_BLOCK_THRESHOLD: SettingInfo = SettingInfo::number("add_block_threshold", 0.0..=1.0, 0.1)
    .says("share of the last block that must be filled before the next one opens");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "multi_block",
    summary: "the next block opens before the last one is full",
    paper: "d3LLM, without training",
    differs: "d3LLM stores a block's keys and values later and refreshes them periodically",
    settings: &[BLOCK_LENGTH, ADD_BLOCK_THRESHOLD],
    caches: &["dual", "none", "prefix"],
    attention: AttentionKind::MASKED,
    shape: Shape::ONE_LANE,
    build: |of| {
        let (length, threshold) = (of.count(&BLOCK_LENGTH), of.number(&ADD_BLOCK_THRESHOLD));
        Box::new(MultiBlock::new(length, threshold))
    },
};

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
    fn appends(&self, state: &State, range: Span<Offset>) -> bool {
        let length = (range.len() - 1) % self.block_length + 1;
        let last = range.end.back(length).to(range.end);
        let filled = f64::from(length - state.canvas.masks(last));
        filled >= self.add_threshold * f64::from(length)
    }
}

impl LaneSchedule for MultiBlock {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.block_length, effects);
    }

    fn must_commit(&self, state: &State) -> Span<Offset> {
        let lane = state.tree.generate();
        lane.map_or(Span::default(), |lane| {
            Span::at(lane.start, self.block_length)
        })
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        while let Some(lane) = state.tree.generate() {
            let (id, end) = (lane.id, state.canvas.end());
            let range = lane.range().clip(end);
            let first = Span::at(range.start, self.block_length).clip(range.end);
            if state.canvas.first_uncommitted(first).is_some() {
                if range.end < end && self.appends(state, range) {
                    let end = range.end.plus(self.block_length).min(end);
                    state.resize_lane(id, end.distance_from(range.start), effects);
                }
                return;
            }
            state.finish_lane(id, first.len(), effects);
            if first.end < end {
                let end = range.end.max(first.end.plus(self.block_length).min(end));
                state.start_block(id, first.end.to(end), effects);
            }
        }
    }
}
