//! Adaptive blocks (AdaBlock-dLLM): a block ends where the model expects a delimiter.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LaneSchedule, ScheduleInfo, Shape, State};
use crate::candidate::Proposal;
use crate::coordinates::Offset;
use crate::describe::AttentionKind;
use crate::effect::Effect;
use crate::numbers::whole;
use crate::settings::SettingInfo;
use crate::token_class::TokenClass;

/// B.
const BLOCK_LENGTH: SettingInfo = SettingInfo::integer("block_length", 1..=1024, 32)
    .says("positions of a block without a delimiter");
/// τ_D.
const DELIMITER_THRESHOLD: SettingInfo = SettingInfo::number("delimiter_threshold", 0.0..=1.0, 0.3)
    .says("confidence that a delimiter needs to end its block");

const DELIMITERS: SettingInfo = SettingInfo::name(
    "delimiters",
    &["newline", "sentence"],
    "newline",
)
.says(
    "tokens that end a block; newline: a single line feed; sentence: full stops and every token \
         with a line feed",
);

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "adaptive_block",
    summary: "blocks that end where the model expects a delimiter",
    paper: "AdaBlock-dLLM",
    differs: "",
    settings: &[BLOCK_LENGTH, DELIMITER_THRESHOLD, DELIMITERS],
    caches: &["dual", "none", "prefix"],
    attention: AttentionKind::MASKED,
    shape: Shape::ONE_LANE,
    build: |of| {
        let (length, threshold) = (of.count(&BLOCK_LENGTH), of.number(&DELIMITER_THRESHOLD));
        let delimiters = match of.name(&DELIMITERS) {
            "sentence" => Delimiters::Sentence,
            _ => Delimiters::Newline,
        };
        Box::new(AdaptiveBlock::new(length, threshold, delimiters))
    },
};

/// The share of the canvas in which a delimiter is looked for.
const WINDOW: f64 = 0.25;

/// The tokens that may end a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiters {
    /// A single line feed, as AdaBlock has it.
    Newline,
    /// Full stops and every token with a line feed.
    Sentence,
}

impl Delimiters {
    fn contain(self, class: TokenClass) -> bool {
        match self {
            Self::Newline => class.line_feed,
            Self::Sentence => class.newline || class.period,
        }
    }
}

/// Block-wise, with the length of every block found in its first forward: up to the most
/// confident delimiter among the next quarter of the budget, if its confidence reaches τ_D, else
/// `block_length`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveBlock {
    block_length: u32,
    delimiter_threshold: f64,
    delimiters: Delimiters,
    /// The active lane has not been forwarded yet.
    fresh: bool,
}

impl AdaptiveBlock {
    /// `block_length` B0, at least 1; `delimiter_threshold` τ_D in `0.0..=1.0`.
    pub fn new(block_length: u32, delimiter_threshold: f64, delimiters: Delimiters) -> Self {
        Self {
            block_length: block_length.max(1),
            delimiter_threshold,
            delimiters,
            fresh: true,
        }
    }

    /// Offsets that the first forward of a block looks at.
    fn window(state: &State) -> u32 {
        whole(WINDOW * f64::from(state.canvas.budget()))
    }

    fn tentative(&self, state: &State) -> u32 {
        Self::window(state).max(self.block_length)
    }

    /// Offsets of the block that begins at `start`.
    fn length(&self, state: &State, start: Offset, proposals: &[Proposal]) -> u32 {
        let window = start.to(start.plus(Self::window(state)));
        let ends = |proposal: &&Proposal| {
            let class = state.classes.get(proposal.candidate.token);
            window.contains(proposal.offset) && self.delimiters.contain(class)
        };
        let mut best: Option<&Proposal> = None;
        for proposal in proposals.iter().filter(ends) {
            let confidence = proposal.candidate.probability;
            if best.is_none_or(|best| confidence > best.candidate.probability) {
                best = Some(proposal);
            }
        }
        match best {
            Some(best) if best.candidate.probability >= self.delimiter_threshold => {
                best.offset.next().distance_from(start)
            }
            _ => self.block_length,
        }
    }
}

impl LaneSchedule for AdaptiveBlock {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let length = self.tentative(state);
        state.start_root(length, effects);
    }

    fn observe(&mut self, state: &mut State, proposals: &[Proposal], effects: &mut Vec<Effect>) {
        let Some(lane) = state.tree.generate().filter(|_| self.fresh) else {
            return;
        };
        let (id, start, len) = (lane.id, lane.start, lane.len);
        let length = self.length(state, start, proposals);
        self.fresh = false;
        state.resize_lane(id, length.min(len), effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let length = self.tentative(state);
        self.fresh |= state.follow_block(length, effects);
    }
}
