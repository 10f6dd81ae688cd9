//! A streaming window (WeDLM, arXiv 2512.22737 §3): the first offsets after the frontier.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LaneSchedule, ScheduleInfo, Shape, State};
use crate::describe::AttentionKind;
use crate::effect::Effect;
use crate::settings::SettingInfo;

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
    caches: &["exact"],
    attention: &[AttentionKind::Causal],
    shape: Shape::ONE_LANE,
    build: |of| Box::new(Streaming::new(of.count(&WINDOW))),
};

/// One lane that ends `window` offsets after the first open offset and moves with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    window: u32,
}

impl Streaming {
    /// `window` W, at least 1; 1 decodes autoregressively.
    pub fn new(window: u32) -> Self {
        Self {
            window: window.max(1),
        }
    }
}

impl LaneSchedule for Streaming {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        state.start_root(self.window, effects);
    }

    fn forwards_commits(&self) -> bool {
        true
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
