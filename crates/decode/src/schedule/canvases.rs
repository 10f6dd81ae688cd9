//! Canvas schedule (DiffusionGemma): one canvas after the other, each committed as a whole.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LaneSchedule, ScheduleInfo, Shape, State};
use crate::describe::AttentionKind;
use crate::effect::Effect;
use crate::settings::SettingInfo;

/// The length of a canvas.
const BLOCK_LENGTH: SettingInfo =
    SettingInfo::integer("block_length", 1..=1024, 256).says("positions of a canvas");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "canvas",
    summary: "one canvas of noise after the other, counted from the end of the prompt",
    paper: "DiffusionGemma",
    differs: "",
    settings: &[BLOCK_LENGTH],
    caches: &["exact"],
    attention: AttentionKind::NOISED,
    shape: Shape {
        longest_lane: |of| Some(of.count(&BLOCK_LENGTH)),
        ..Shape::ONE_LANE
    },
    build: |of| Box::new(Canvases::new(of.count(&BLOCK_LENGTH))),
};

/// A generate lane of `length` offsets; its successor starts once it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvases {
    length: u32,
}

impl Canvases {
    /// `length` positions, at least 1.
    pub fn new(length: u32) -> Self {
        Self {
            length: length.max(1),
        }
    }
}

impl LaneSchedule for Canvases {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.length, effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.follow_block(self.length, effects);
    }
}
