//! Speculative schedule (DiffuSpec, arXiv 2510.02358): one open position, and the drafts of another
//! model after it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LaneSchedule, ScheduleInfo, Shape, State, Streaming};
use crate::describe::AttentionKind;
use crate::effect::Effect;
use crate::settings::SettingInfo;

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
    caches: &["exact"],
    attention: &[AttentionKind::Causal],
    shape: Shape {
        drafts: |of| of.count(&DRAFT_LENGTH),
        ..Shape::ONE_LANE
    },
    build: |of| Box::new(Speculative::new(of.count(&DRAFT_LENGTH))),
};

/// A [`Streaming`] window of one position that asks for drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speculative {
    window: Streaming,
    drafts: u32,
}

impl Speculative {
    /// `drafts`: most drafts of a step.
    pub fn new(drafts: u32) -> Self {
        let window = Streaming::new(1);
        Self { window, drafts }
    }
}

impl LaneSchedule for Speculative {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        self.window.start(state, effects);
    }

    fn forwards_commits(&self) -> bool {
        self.window.forwards_commits()
    }

    fn drafts(&self) -> u32 {
        self.drafts
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        self.window.advance(state, effects);
    }
}
