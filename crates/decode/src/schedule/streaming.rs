//! A streaming window (WeDLM, arXiv 2512.22737 §3): the first offsets after the frontier.

use super::prelude::*;

/// W.
const WINDOW: SettingInfo = SettingInfo::integer("window", 1..=256, 16)
    .says("positions of the window, committed ones included");

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "streaming",
    summary: "a window that begins at the first open position and moves with it",
    paper: "WeDLM, arXiv 2512.22737",
    differs: "",
    settings: &[WINDOW],
    attention: &[AttentionKind::Causal, AttentionKind::OpenBlock],
    shape: Shape::ONE_LANE,
    build: |settings| Streaming::boxed(settings.count(&WINDOW), 0),
};

/// One lane that ends `window` offsets after the first open offset and moves with it. A window of one
/// offset decodes autoregressively, and may ask for drafts.
#[derive(Debug)]
pub(super) struct Streaming {
    /// W, at least 1.
    window: u32,
    /// Most drafts of a step.
    drafts: u32,
}

impl Streaming {
    pub(super) fn boxed(window: u32, drafts: u32) -> Box<dyn LaneSchedule> {
        Box::new(Self { window, drafts })
    }
}

impl LaneSchedule for Streaming {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.window, effects);
    }

    fn forwards_commits(&self) -> bool {
        true
    }

    fn drafts(&self) -> u32 {
        self.drafts
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let Some(lane) = state.tree.generate() else {
            return;
        };
        let (id, start, end) = (lane.id, lane.start, state.canvas.end());
        let settled = state.canvas.frontier().max(start);
        match state.canvas.first_uncommitted(settled.to(end)) {
            None => state.finish_lane(id, end.distance_from(start), effects),
            Some(frontier) => {
                let end = frontier.plus(self.window).min(end);
                state.resize_lane(id, end.distance_from(start), effects);
            }
        }
    }
}
