//! Cache policies of AsyncLane (§4): snapshot, fresh and fused, with compact refresh.

use decode::{ForwardKind, Offset, Place, Span};

use super::{CachePolicy, ForwardPlan, PlanRow, Tables, View};
use crate::decoding::{Compact, Refresh};
use crate::layout::slot_of;

/// A lane sees its prefix, itself and its lookahead, nothing to the right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) compact: Compact,
    /// Snapshot: a fork clones the page table and lanes write to pages of their own. Otherwise
    /// (fresh) a lane reads the current K/V of a prefix that is still being refined.
    pub(crate) private: bool,
}

impl CachePolicy for Lanes {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        kind(&self.compact, view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if refreshes(&self.compact, view, plan) {
            return;
        }
        for lane in view.decoder.lanes() {
            let end = view.layout.place_of(lane.lookahead.end);
            plan.push_range(view.layout.place_of(lane.range.start).to(end), end);
            if self.private {
                plan.close(lane.id);
            }
        }
        if !self.private {
            plan.close(Tables::SHARED);
        }
    }

    fn private_tables(&self) -> bool {
        self.private
    }
}

/// One table: every row sees every slot that was ever written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fused {
    pub(crate) compact: Compact,
    /// Leave out rows that cannot change anything.
    pub(crate) open: bool,
}

impl CachePolicy for Fused {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        kind(&self.compact, view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if refreshes(&self.compact, view, plan) {
            return;
        }
        if self.open {
            open_rows(view, &[], plan);
        } else {
            for lane in view.decoder.lanes() {
                let offsets = lane.range.start.to(lane.lookahead.end);
                plan.push_range(view.layout.places_of(offsets), Place::ZERO);
            }
        }
        see_written(view, plan);
    }
}

/// Lets every row see every written slot, and ends the only segment.
pub(super) fn see_written(view: &View<'_>, plan: &mut ForwardPlan) {
    let last = plan.rows.last().map_or(Place::ZERO, |row| row.place.next());
    let visible_end = slot_of(last.max(view.written).min(view.end()));
    for row in &mut plan.rows {
        row.visible_end = visible_end;
    }
    plan.close(Tables::SHARED);
}

/// Masks of the lanes and their lookaheads, tokens committed in the last step (each committed
/// token is forwarded once, so that its K/V hold the token and not the mask), and the offsets
/// `tracked`, ascending.
pub(super) fn open_rows(view: &View<'_>, tracked: &[Offset], plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = Offset::ZERO;
    let is_tracked = |offset: Offset| tracked.binary_search(&offset).is_ok();
    // Left and right of the lanes only few offsets can be of interest, and a canvas is long.
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

/// What the next forward is: a refresh if one is due (eq. 12).
fn kind(compact: &Compact, view: &View<'_>) -> ForwardKind {
    view.kind(match compact.refresh {
        Refresh::Lane => view.lane_started,
        Refresh::Every(steps) => view.since_refresh >= steps,
        Refresh::Never => false,
    })
}

/// Plans a refresh if one is due; its logits serve the step's commits. Otherwise begins a decode
/// forward.
fn refreshes(compact: &Compact, view: &View<'_>, plan: &mut ForwardPlan) -> bool {
    if kind(compact, view) != ForwardKind::Decode {
        refresh(compact.margin, view, plan);
        return true;
    }
    plan.begin(ForwardKind::Decode);
    false
}

/// Plans a refresh of `[0, P + Leff + margin)`, the first forward up to the last lane's end.
pub(super) fn refresh(margin: u32, view: &View<'_>, plan: &mut ForwardPlan) {
    let rows = view
        .decoder
        .lanes()
        .map(|lane| lane.lookahead.end)
        .max()
        .unwrap_or_default();
    let reach = view.decoder.effective_end().plus(margin);
    let end = if view.first {
        rows
    } else {
        reach.min(view.decoder.canvas().end()).max(rows)
    };
    plan.full(view, view.layout.place_of(end), Tables::SHARED);
}
