//! Block-wise schedule (LLaDA §2.4, Fast-dLLM): one block at a time, left to right.

use super::prelude::*;

/// B.
const BLOCK_LENGTH: SettingInfo =
    SettingInfo::integer("block_length", 1..=1024, 32).says("positions of a block");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "block_wise",
    summary: "one block after the other, left to right",
    paper: "LLaDA, arXiv 2502.09992; Fast-dLLM, arXiv 2505.22618",
    differs: "",
    settings: &[BLOCK_LENGTH],
    attention: AttentionKind::MASKED,
    shape: Shape {
        longest_lane: |settings| Some(settings.count(&BLOCK_LENGTH)),
        reach: |settings| settings.count(&BLOCK_LENGTH) + BEHIND_BLOCK,
        fills_canvas: true,
        in_blocks: true,
        ..Shape::ONE_LANE
    },
    build: |settings| {
        let block_length = settings.count(&BLOCK_LENGTH);
        Box::new(BlockWise { block_length })
    },
};

/// Offsets after a block that a compact refresh renews.
const BEHIND_BLOCK: u32 = 32;

/// A generate lane of `block_length` offsets; its successor starts when no mask is left in it.
///
/// Blocks are counted from the prompt's first token. With [`State::lead`] they lie inside the
/// model's blocks (sub-blocks of Fast-dLLM v2, arXiv 2509.26328 §3.3), and the first position of a
/// model's block is a lane of its own. Other weights that predict a position at the row before (Dream)
/// commit the first token of a block, and no other, in the forward that begins the block, where a cache
/// keeps K/V left of it: Fast-dLLM does not compute the row before the block again.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockWise {
    pub(super) block_length: u32,
}

impl BlockWise {
    /// Length of the lane that begins at `offset`.
    fn length(self, state: &State, offset: Offset) -> u32 {
        let place = state.phase + offset.get();
        let rest = self.block_length - place % self.block_length;
        match state.lead.map(|length| (place % length, length)) {
            Some((0, _)) => 1,
            Some((inside, length)) => rest.min(length - inside),
            None => rest,
        }
    }
}

impl LaneSchedule for BlockWise {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.length(state, Offset::ZERO), effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let schedule = *self;
        state.follow(|state, offset| schedule.length(state, offset), effects);
    }
}
