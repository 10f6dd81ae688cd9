//! Adaptive blocks (AdaBlock-dLLM): a block ends where the model expects a delimiter.

use super::prelude::*;
use crate::numbers::whole;
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
    attention: AttentionKind::SEVERAL,
    shape: Shape { in_blocks: true, ..Shape::ONE_LANE },
    build: |settings| {
        Box::new(AdaptiveBlock {
            block_length: settings.count(&BLOCK_LENGTH),
            delimiter_threshold: settings.number(&DELIMITER_THRESHOLD),
            sentences: settings.name(&DELIMITERS) == "sentence",
            fresh: true,
        })
    },
};

/// The fraction of the budget in which a delimiter is looked for.
const WINDOW: f64 = 0.25;

/// Block-wise, with the length of every block found in its first forward: up to the most
/// confident delimiter among the next quarter of the budget, if its confidence reaches τ_D, else
/// `block_length`.
#[derive(Debug)]
struct AdaptiveBlock {
    block_length: u32,
    delimiter_threshold: f64,
    /// Full stops and every token with a line feed end a block; otherwise a single line feed does, as
    /// AdaBlock has it.
    sentences: bool,
    /// The active lane has not been forwarded yet.
    fresh: bool,
}

impl AdaptiveBlock {
    fn is_delimiter(&self, class: TokenClass) -> bool {
        match self.sentences {
            true => class.newline || class.period,
            false => class.line_feed,
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
            window.contains(proposal.offset) && self.is_delimiter(class)
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
