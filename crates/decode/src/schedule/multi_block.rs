//! Several blocks at once: the next block opens before the last one is full (d3LLM-TF multi-block
//! decoding; D2F, arXiv 2508.09192 §4.3).

use super::prelude::*;

/// B.
const BLOCK_LENGTH: SettingInfo =
    SettingInfo::integer("block_length", 1..=1024, 32).says("positions of a block");
/// D2F's τ_add.
const ADD_BLOCK_THRESHOLD: SettingInfo = SettingInfo::number("add_block_threshold", 0.0..=1.0, 0.1)
    .says("fraction of the last block that must be filled before the next one opens");
/// D2F's τ_act.
const ACTIVE_BLOCK_THRESHOLD: SettingInfo = SettingInfo::number(
    "active_block_threshold",
    0.0..=1.0,
    1.0,
)
.derived("one in the first open block, and one anywhere")
.says("fraction of a block that must be filled before every step commits in the block after it");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "multi_block",
    summary: "the next block opens before the last one is full",
    paper: "d3LLM, without training; D2F, arXiv 2508.09192",
    differs: "d3LLM stores a block's keys and values later and refreshes them periodically; D2F compares \
              confidences with `>`, and finishes blocks that lie behind a stop token",
    settings: &[BLOCK_LENGTH, ADD_BLOCK_THRESHOLD, ACTIVE_BLOCK_THRESHOLD],
    attention: AttentionKind::SEVERAL,
    shape: Shape::ONE_LANE,
    build: |settings| {
        let active = settings.value(&ACTIVE_BLOCK_THRESHOLD);
        Box::new(MultiBlock {
            block_length: settings.count(&BLOCK_LENGTH),
            add_threshold: settings.number(&ADD_BLOCK_THRESHOLD),
            active_threshold: active.and_then(|value| value.as_number()),
        })
    },
};

/// One lane over all open blocks. A block is appended once the last one is filled to
/// `add_threshold`, one in a step; the first one leaves the lane once it is full, and has a commit in
/// every step. Blocks are counted from the prompt's end or, on weights that count theirs from the
/// prompt's first token, from there.
///
/// With an active threshold (D2F), each block has a commit in every step once the block before it is
/// filled to that fraction, and other blocks commit only the masks that the rule chooses.
#[derive(Debug)]
struct MultiBlock {
    block_length: u32,
    add_threshold: f64,
    /// D2F's second threshold; `None` = d3LLM's rule.
    active_threshold: Option<f64>,
}

impl MultiBlock {
    /// The offsets from `start` up to the end of the block that holds it.
    fn block(&self, state: &State, start: Offset) -> Span<Offset> {
        let inside = start.plus(state.phase).in_block(self.block_length);
        Span::at(start, self.block_length - inside).clip(state.canvas.end())
    }

    /// The first offset of the block that holds `offset`.
    fn start_of(&self, state: &State, offset: Offset) -> Offset {
        let inside = offset.plus(state.phase).in_block(self.block_length);
        offset.back(inside)
    }

    /// Returns true if a fraction of `block` is filled.
    fn reaches(state: &State, block: Span<Offset>, fraction: f64) -> bool {
        let filled = f64::from(block.len() - state.canvas.masks(block));
        filled / f64::from(block.len().max(1)) >= fraction
    }

    /// Returns true if the last block of the lane `range` is filled far enough.
    fn appends(&self, state: &State, range: Span<Offset>) -> bool {
        let start = self.start_of(state, range.end.back(1));
        let last = start.max(range.start).to(range.end);
        Self::reaches(state, last, self.add_threshold)
    }
}

impl LaneSchedule for MultiBlock {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let first = self.block(state, Offset::ZERO);
        state.start_root(first.len(), effects);
    }

    fn must_commit(&self, state: &State, start: Offset) -> Option<Span<Offset>> {
        let range = state.tree.generate()?.range().clip(state.canvas.end());
        if start <= range.start {
            return Some(self.block(state, range.start));
        }
        let fraction = self.active_threshold?;
        // All demanded spans end where blocks do.
        let last = start.back(1);
        let mut before = self.block(state, self.start_of(state, last).max(range.start));
        while before.end < range.end {
            let block = self.block(state, before.end);
            if start <= block.start && Self::reaches(state, before, fraction) {
                return Some(block);
            }
            before = block;
        }
        None
    }

    fn commits_anywhere(&self) -> bool {
        self.active_threshold.is_none()
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let mut opened = false;
        while let Some(lane) = state.tree.generate() {
            let (id, end) = (lane.id, state.canvas.end());
            let range = lane.range().clip(end);
            let first = self.block(state, range.start).clip(range.end);
            if state.canvas.first_uncommitted(first).is_some() {
                if !opened && range.end < end && self.appends(state, range) {
                    let end = self.block(state, range.end).end;
                    state.resize_lane(id, end.distance_from(range.start), effects);
                }
                return;
            }
            state.finish_lane(id, first.len(), effects);
            if first.end < end {
                opened |= range.end == first.end;
                let end = range.end.max(self.block(state, first.end).end);
                state.start_block(id, first.end.to(end), effects);
            }
        }
    }
}
