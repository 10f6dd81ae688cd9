//! The rows of a forward whose lanes share one page table.

use decode::{ForwardKind, LaneView, Offset, Place, Span};

use super::{ForwardPlan, PlanRow, SHARED, View};
use crate::layout::slot_of;

/// Lets every row see every written slot, and ends the only segment.
pub(in crate::cache) fn see_written(view: &View<'_>, plan: &mut ForwardPlan) {
    let last = plan.rows.last().map_or(Place::ZERO, |row| row.place.next());
    let visible_end = slot_of(last.max(view.written).min(view.end()));
    for row in &mut plan.rows {
        row.visible_end = visible_end;
    }
    plan.close(SHARED);
}

/// Masks of the lanes and their lookaheads, tokens committed in the last step (each committed
/// token is forwarded once, so that its K/V hold the token and not the mask), and the offsets
/// `tracked`, ascending.
pub(in crate::cache) fn open_rows(view: &View<'_>, tracked: &[Offset], plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = Offset::ZERO;
    let is_tracked = |offset: Offset| tracked.binary_search(&offset).is_ok();
    // Outside the lanes only these offsets can need a row; the canvas is not searched.
    let start = tracked.first().copied().unwrap_or(view.fresh.start);
    let end = tracked.last().map_or(Offset::ZERO, |offset| offset.next());
    let noted = start.min(view.fresh.start).to(end.max(view.fresh.end));
    debug_assert!(
        (canvas.span().iter())
            .all(|offset| canvas.written_at(offset) != step || noted.contains(offset)),
        "the last step wrote inside {:?}",
        view.fresh
    );
    let settle = |plan: &mut ForwardPlan, offsets: Span<Offset>| {
        let fresh = |offset: &Offset| canvas.written_at(*offset) == step || is_tracked(*offset);
        for offset in offsets.intersect(noted).iter().filter(fresh) {
            plan.rows.push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
        }
    };
    for lane in view.decoder.lanes() {
        settle(plan, next.to(lane.range.start));
        for offset in lane.range.start.to(lane.lookahead.end) {
            let written = canvas.written_at(offset);
            if canvas.is_mask(offset) || written == step || is_tracked(offset) {
                plan.rows.push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
            }
        }
        next = lane.lookahead.end;
    }
    settle(plan, next.to(canvas.end()));
}

/// The rows of a forward in addition to open rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cache) struct Sight {
    /// Every offset of the lanes and their lookaheads.
    pub(in crate::cache) all: bool,
    /// Tokens up to this number of places left of a mask of the lanes.
    pub(in crate::cache) left: u32,
    /// Offsets after the lanes.
    pub(in crate::cache) right: u32,
    /// Tokens up to this number of places beside a token that the last step wrote.
    pub(in crate::cache) beside: u32,
}

/// As [`open_rows`], and what `sight` adds: slots that would be stale or missing otherwise.
pub(in crate::cache) fn sighted_rows(view: &View<'_>, sight: Sight, plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let lanes = || view.decoder.lanes();
    let end = lanes().map(|lane| lane.lookahead.end).max();
    let end = end.unwrap_or_default();
    let starts = lanes().map(|lane| view.place(lane.range.start)).min();
    let first = starts.unwrap_or_default().back(sight.left);
    let beside = view.place(view.fresh.start.back(sight.beside));
    let right = end.to(end.plus(sight.right));
    let last = right.end.max(view.fresh.end).min(canvas.end());
    let last = view.place(last);
    let mut mask = None;
    let begin = plan.rows.len();
    // From the right, so that the distance to the next mask is known.
    for place in first.min(beside).to(last).iter().rev() {
        let near = |next: Place| next.distance_from(place) <= sight.left;
        let is_left = sight.left > 0 && mask.is_some_and(near);
        let is_row = match view.layout.offset_of(place) {
            None => is_left,
            Some(offset) => {
                let in_lane =
                    lanes().any(|lane| lane.range.start.to(lane.lookahead.end).contains(offset));
                if in_lane && canvas.is_mask(offset) {
                    mask = Some(place);
                }
                let is_open = in_lane && (sight.all || canvas.is_mask(offset));
                let settles = !sight.all || sight.beside > 0;
                is_left
                    || is_open
                    || right.contains(offset)
                    || settles && is_beside(view, offset, sight.beside)
            }
        };
        if is_row {
            plan.rows.push(PlanRow::at(place, Place::ZERO));
        }
    }
    plan.rows[begin..].reverse();
}

/// Returns true if a token that the last step wrote lies up to `distance` from `offset`.
fn is_beside(view: &View<'_>, offset: Offset, distance: u32) -> bool {
    let (canvas, step) = (view.decoder.canvas(), view.decoder.step());
    let around = offset.back(distance).to(offset.plus(distance).next());
    let mut noted = around.intersect(view.fresh).iter();
    noted.any(|offset| canvas.written_at(offset) == step)
}

/// A full forward when a block starts; then the rows of every lane up to `end` of its own end, which
/// see the canvas up to the lane's horizon; and the same for every guessed canvas. Where a lane says
/// which commits are renewed, tokens committed before keep their K/V, and later ones up to the
/// horizon have rows.
pub(in crate::cache) fn block(
    view: &View<'_>,
    plan: &mut ForwardPlan,
    end: impl Fn(Place) -> Place,
) {
    if view.lane_started {
        return plan.full(view, view.end(), SHARED);
    }
    plan.begin(ForwardKind::Decode);
    for lane in view.decoder.lanes() {
        let places = view.places(lane.range);
        let seen = view.place(lane.horizon);
        match lane.renewed_from {
            0 => plan.push_range(places.start.to(end(places.end)), seen),
            oldest => renewed(view, &lane, oldest, plan),
        }
    }
    plan.close(SHARED);
    plan.push_branches(view);
}

/// The masks of a lane, and the tokens committed since step `oldest` up to its horizon.
fn renewed(view: &View<'_>, lane: &LaneView, oldest: u32, plan: &mut ForwardPlan) {
    let (canvas, seen) = (view.decoder.canvas(), view.place(lane.horizon));
    for offset in lane.range.start.to(lane.horizon) {
        let is_read = match canvas.is_mask(offset) {
            true => lane.range.contains(offset),
            false => canvas.written_at(offset) >= oldest,
        };
        if is_read {
            plan.rows.push(PlanRow::at(view.place(offset), seen));
        }
    }
}
