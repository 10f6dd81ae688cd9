//! Canvas schedule (DiffusionGemma): one canvas after the other, each committed as a whole.

use super::block_wise::BlockWise;
use super::prelude::*;

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
    attention: AttentionKind::NOISED,
    shape: Shape {
        longest_lane: |settings| Some(settings.count(&BLOCK_LENGTH)),
        ..Shape::ONE_LANE
    },
    build: |settings| {
        let block_length = settings.count(&BLOCK_LENGTH);
        Box::new(BlockWise { block_length })
    },
};
