//! Cache policies of AsyncLane (§4): snapshot, fresh and fused, with compact refresh.

use std::ops::Range;

use decode::ForwardKind;

use super::{CachePolicy, ForwardPlan, PlanRow, Tables, View};
use crate::decoding::{Compact, Refresh};

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
            let end = view.prompt + lane.lookahead.end;
            plan.push_range(view.prompt + lane.range.start..end, end);
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
                let rows = view.prompt + lane.range.start..view.prompt + lane.lookahead.end;
                plan.push_range(rows, 0);
            }
        }
        see_written(view, plan);
    }
}

/// Lets every row see every written slot, and ends the only segment.
pub(super) fn see_written(view: &View<'_>, plan: &mut ForwardPlan) {
    let last = plan.rows.last().map_or(0, |row| row.place + 1);
    let visible = last.max(view.written).min(view.end());
    for row in &mut plan.rows {
        row.visible = visible;
    }
    plan.close(Tables::SHARED);
}

/// Masks of the lanes and their lookaheads, tokens committed in the last step (each committed
/// token is forwarded once, so that its K/V hold the token and not the mask), and the offsets
/// `tracked`, ascending.
pub(super) fn open_rows(view: &View<'_>, tracked: &[u32], plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = 0;
    let is_tracked = |offset: u32| tracked.binary_search(&offset).is_ok();
    // Left and right of the lanes only few offsets can be of interest, and a canvas is long.
    let from = tracked.first().map_or(u32::MAX, |offset| *offset);
    let from = from.min(view.fresh.start);
    let to = tracked.last().map_or(0, |offset| offset + 1);
    let to = to.max(view.fresh.end);
    debug_assert!(
        (0..canvas.len()).all(|at| canvas.written_at(at) != step || (from..to).contains(&at)),
        "the last step wrote inside {:?}",
        view.fresh
    );
    let settle = |plan: &mut ForwardPlan, offsets: Range<u32>| {
        let fresh = |offset: &u32| canvas.written_at(*offset) == step || is_tracked(*offset);
        for offset in (offsets.start.max(from)..offsets.end.min(to)).filter(fresh) {
            plan.rows.push(PlanRow::at(view.prompt + offset, 0));
        }
    };
    for lane in view.decoder.lanes() {
        settle(plan, next..lane.range.start);
        for offset in lane.range.start..lane.lookahead.end {
            let written = canvas.written_at(offset);
            if written == 0 || written == step || is_tracked(offset) {
                plan.rows.push(PlanRow::at(view.prompt + offset, 0));
            }
        }
        next = lane.lookahead.end;
    }
    settle(plan, next..canvas.len());
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
        .unwrap_or(0);
    let reach = view.decoder.effective_len().saturating_add(margin);
    let end = if view.first {
        rows
    } else {
        reach.min(view.decoder.canvas().len()).max(rows)
    };
    plan.full(view, view.prompt + end, Tables::SHARED);
}
