//! Speculative schedule (DiffuSpec, arXiv 2510.02358): one open position, and the drafts of another
//! model after it.

use super::prelude::*;
use super::streaming::Streaming;

/// Most drafts of a forward pass.
const DRAFT_LENGTH: SettingInfo = SettingInfo::integer("draft_length", 1..=32, 8)
    .says("tokens that the draft model proposes for each forward pass of the verifier");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "speculative",
    summary: "the first open position, and after it the drafts of a draft model that the model would \
              have chosen itself",
    paper: "DiffuSpec, arXiv 2510.02358",
    differs: "DiffuSpec searches a path through the drafter's most probable tokens and adapts the \
              number of drafts; here the drafter decodes one path of a fixed length",
    settings: &[DRAFT_LENGTH],
    attention: &[AttentionKind::Causal],
    shape: Shape { drafts: |settings| settings.count(&DRAFT_LENGTH), ..Shape::ONE_LANE },
    build: |settings| Streaming::boxed(1, settings.count(&DRAFT_LENGTH)),
};
