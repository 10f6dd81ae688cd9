//! Prompt lookup: one open position, and after it the tokens that followed the text's last tokens
//! where the text has them before.

use super::prelude::*;
use super::streaming::Streaming;

/// Most drafts of a forward pass.
const DRAFT_LENGTH: SettingInfo = SettingInfo::integer("draft_length", 1..=32, 8)
    .says("tokens that are copied from the text for each forward pass");
/// Fewest tokens that recur.
const MATCH_LENGTH: SettingInfo = SettingInfo::integer("match_length", 1..=8, 2)
    .says("last tokens of the text that must recur in it before tokens are copied");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "prompt_lookup",
    summary: "the first open position, and after it tokens copied from the prompt and the answer, as \
              far as the model would have chosen them itself",
    paper: "Aggressive Decoding, arXiv 2106.04970",
    differs: "Aggressive Decoding copies the rest of its whole input; here a fixed number of tokens \
              after the latest of the longest matches is copied",
    settings: &[DRAFT_LENGTH, MATCH_LENGTH],
    attention: &[AttentionKind::Causal, AttentionKind::OpenBlock],
    shape: Shape {
        drafts: |settings| settings.count(&DRAFT_LENGTH),
        copies: |settings| Some(settings.count(&MATCH_LENGTH)),
        ..Shape::ONE_LANE
    },
    build: |settings| Streaming::boxed(1, settings.count(&DRAFT_LENGTH)),
};
