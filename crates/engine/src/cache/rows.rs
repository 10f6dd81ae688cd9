//! The rows of a forward whose lanes share one page table.

use decode::{ForwardKind, LaneView, Offset, Place, Span};

use super::{ForwardPlan, PlanRow, SHARED, View};
use crate::layout::slot_of;

/// Lets every row see every written slot, and ends the only segment.
pub(super) fn see_written(view: &View<'_>, plan: &mut ForwardPlan) {
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
pub(super) fn open_rows(view: &View<'_>, tracked: &[Offset], plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = Offset::ZERO;
    let is_tracked = |offset: Offset| tracked.binary_search(&offset).is_ok();
    // Outside the lanes only these offsets can need a row; the canvas is not searched.
    let from = tracked.first().copied().unwrap_or(view.fresh.start);
    let to = tracked.last().map_or(Offset::ZERO, |offset| offset.next());
    let noted = from.min(view.fresh.start).to(to.max(view.fresh.end));
    debug_assert!(
        (canvas.span().iter()).all(|at| canvas.written_at(at) != step || noted.contains(at)),
        "the last step wrote inside {:?}",
        view.fresh
    );
    let settle = |plan: &mut ForwardPlan, offsets: Span<Offset>| {
        let fresh = |offset: &Offset| canvas.written_at(*offset) == step || is_tracked(*offset);
        for offset in offsets.intersect(noted).iter().filter(fresh) {
            plan.rows
                .push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
        }
    };
    for lane in view.decoder.lanes() {
        settle(plan, next.to(lane.range.start));
        for offset in lane.range.start.to(lane.lookahead.end) {
            let written = canvas.written_at(offset);
            if written == 0 || written == step || is_tracked(offset) {
                plan.rows
                    .push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
            }
        }
        next = lane.lookahead.end;
    }
    settle(plan, next.to(canvas.end()));
}

/// A full forward when a block starts; then the rows of every lane up to `end` of its own end, which
/// see the canvas up to the lane's horizon; and the same for every guessed canvas. Where a lane says
/// which commits are renewed, tokens committed before keep their K/V, and later ones up to the
/// horizon have rows.
pub(super) fn block(view: &View<'_>, plan: &mut ForwardPlan, end: impl Fn(Place) -> Place) {
    if view.lane_started {
        return plan.full(view, view.end(), SHARED);
    }
    plan.begin(ForwardKind::Decode);
    for lane in view.decoder.lanes() {
        let places = view.places(lane.range);
        let seen = view.place(lane.horizon);
        match lane.renewed_from {
            0 => plan.push_range(places.start.to(end(places.end)), seen),
            from => renewed(view, &lane, from, plan),
        }
    }
    plan.close(SHARED);
    plan.push_branches(view);
}

/// The masks of a lane, and the tokens committed since step `from` up to its horizon.
fn renewed(view: &View<'_>, lane: &LaneView, from: u32, plan: &mut ForwardPlan) {
    let (canvas, seen) = (view.decoder.canvas(), view.place(lane.horizon));
    for offset in lane.range.start.to(lane.horizon) {
        let is_read = match canvas.written_at(offset) {
            0 => lane.range.contains(offset),
            step => step >= from,
        };
        if is_read {
            plan.rows.push(PlanRow::at(view.place(offset), seen));
        }
    }
}
