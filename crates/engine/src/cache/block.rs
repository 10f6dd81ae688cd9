//! Cache policies of schedules with one lane: none, prefix and dual (Fast-dLLM §3.2).

use decode::{ForwardKind, Place};

use super::{CachePolicy, ForwardPlan, Tables, View};

/// Every forward computes the whole canvas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoCache;

impl CachePolicy for NoCache {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        plan.full(view, view.end(), Tables::SHARED);
        if !view.first {
            plan.kind = ForwardKind::Decode;
            plan.push_branches(view);
        }
    }
}

/// A full forward when a block starts; then the block and everything behind it, reading the
/// K/V left of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix;

impl CachePolicy for Prefix {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(view.lane_started)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        block(view, plan, |_block_end| view.end());
    }
}

/// A full forward when a block starts; then the block alone, reading the K/V of the whole
/// canvas, or up to the lane's horizon where the schedule drops masks far away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dual;

impl CachePolicy for Dual {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(view.lane_started)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        block(view, plan, |block_end| block_end);
    }
}

fn block(view: &View<'_>, plan: &mut ForwardPlan, rows_end: impl Fn(Place) -> Place) {
    if view.lane_started {
        return plan.full(view, view.end(), Tables::SHARED);
    }
    plan.begin(ForwardKind::Decode);
    for lane in view.decoder.lanes() {
        let places = view.layout.places_of(lane.range);
        let seen = view.layout.place_of(lane.horizon);
        plan.push_range(places.start.to(rows_end(places.end)), seen);
    }
    plan.close(Tables::SHARED);
    plan.push_branches(view);
}
