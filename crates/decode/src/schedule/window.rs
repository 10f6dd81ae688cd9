//! A sliding window (Window-Diffusion, arXiv 2601.20332): only the first masks are active.

use alloc::borrow::ToOwned;
use alloc::format;

use super::prelude::*;
use crate::describe::Fault;
use crate::effect::LaneId;
use crate::settings::{SettingDefault, SettingKind, Settings, UNBOUNDED, Value};

const ACTIVE: SettingInfo = SettingInfo::integer("block_length", 1..=1024, 16)
    .says("masks that may be committed by a forward pass that does not read the whole canvas");
const OUTER: SettingInfo = SettingInfo::integer("window", 1..=256, 64)
    .says("masks that a forward pass reads; at least `block_length`");
/// The same setting as that of the cache policies; an integer here.
const REFRESH: SettingInfo = SettingInfo {
    name: "refresh",
    kind: SettingKind::NameOrInteger(&["lane", "never"], 1, UNBOUNDED),
    default: SettingDefault::Value(Value::Integer(31)),
    summary: "forward passes between two over the whole canvas",
};

/// The schedule's description.
pub static INFO: ScheduleInfo = ScheduleInfo {
    name: "window",
    summary: "the first masks; masks far away are left out between refreshes",
    paper: "Window-Diffusion, arXiv 2601.20332",
    differs: "between two forward passes over the whole canvas, tokens committed beyond the window are \
              not read; Window-Diffusion reads them, and on Dream it cuts the canvas behind the window \
              and commits the first mask alone in such a pass",
    settings: &[ACTIVE, OUTER, REFRESH],
    attention: AttentionKind::SEVERAL,
    shape: Shape { check, reach: |settings| settings.count(&OUTER), ..Shape::ONE_LANE },
    build: |settings| {
        Box::new(Window {
            active: settings.count(&ACTIVE),
            outer: settings.count(&OUTER),
            cycle: settings.count(&REFRESH).saturating_add(1),
            seen: Offset::ZERO,
        })
    },
};

fn check(settings: &Settings) -> Result<(), Fault> {
    let (active, outer) = (settings.count(&ACTIVE), settings.count(&OUTER));
    let fault = |setting: &SettingInfo, message| {
        let setting = setting.name;
        Err(Fault { setting, message })
    };
    if outer < active {
        let message = format!("must be at least block_length = {active}, got {outer}");
        return fault(&OUTER, message);
    }
    match settings.value(&REFRESH) {
        Some(Value::Integer(_)) => Ok(()),
        _ => fault(&REFRESH, "must be an integer with schedule window".to_owned()),
    }
}

/// One lane for a cycle of `cycle` steps. Its first step reads the whole canvas and may commit
/// anywhere. From then on it has the first `active` masks and slides right as they are filled; after
/// it, what lay left of the `outer`-th mask after the first step is context. A forward renews the K/V
/// of its masks and of the tokens that the cycle has committed. The next lane begins at the frontier.
#[derive(Debug)]
struct Window {
    active: u32,
    outer: u32,
    cycle: u32,
    /// Offset after the outer window.
    seen: Offset,
}

impl Window {
    /// Moves the end of the lane to after its `active`-th mask.
    fn slide(&mut self, id: LaneId, state: &mut State, effects: &mut Vec<Effect>) {
        let Lane { start, clock, .. } = *state.tree.get(id);
        let end = behind_masks(state, start, self.active);
        if clock == 1 {
            self.seen = behind_masks(state, start, self.outer);
        }
        state.resize_lane(id, end.distance_from(start), effects);
    }
}

/// The offset after the `count`-th mask from `start` on, the canvas's end if there are fewer.
fn behind_masks(state: &State, start: Offset, count: u32) -> Offset {
    let canvas = &state.canvas;
    let open = start.to(canvas.end()).iter();
    let mut masks = open.filter(|offset| !canvas.is_committed(*offset));
    masks.nth(as_index(count) - 1).map_or(canvas.end(), Offset::next)
}

impl LaneSchedule for Window {
    fn start(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        self.seen = state.canvas.end();
        state.start_root(state.canvas.len(), effects);
    }

    fn advance(&mut self, state: &mut State, effects: &mut Vec<Effect>) {
        let Some(lane) = state.tree.generate() else {
            return;
        };
        let (id, start, clock) = (lane.id, lane.start, lane.clock);
        let end = state.canvas.end();
        let frontier = state.canvas.first_uncommitted(start.to(end));
        match frontier {
            None => state.finish_lane(id, end.distance_from(start), effects),
            Some(_) if clock < self.cycle => self.slide(id, state, effects),
            Some(frontier) => {
                state.finish_lane(id, frontier.distance_from(start), effects);
                self.seen = end;
                state.start_block(id, frontier.to(end), effects);
            }
        }
    }

    fn lookahead(&self, lane: &Lane) -> Span<Offset> {
        let end = lane.range().end;
        end.to(self.seen.max(end))
    }

    fn drops_far_masks(&self) -> bool {
        true
    }

    fn renews_cycle(&self) -> bool {
        true
    }
}
