//! Cache policies of AsyncLane (§4): snapshot, fresh and fused, with compact refresh.

use decode::ForwardKind;

use super::{CachePolicy, ForwardPlan, Tables, View};
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
    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if refreshes(&self.compact, view, plan) {
            return;
        }
        if self.open {
            open_rows(view, plan);
        } else {
            for lane in view.decoder.lanes() {
                let rows = view.prompt + lane.range.start..view.prompt + lane.lookahead.end;
                plan.push_range(rows, 0);
            }
        }
        let last = plan.rows.last().map_or(0, |(position, _)| position + 1);
        let visible = last.max(view.written).min(view.end());
        for row in &mut plan.rows {
            row.1 = visible;
        }
        plan.close(Tables::SHARED);
    }
}

/// Masks of the lanes and their lookaheads, and tokens committed in the last step: each
/// committed token is forwarded exactly once, so that its K/V hold the token and not the mask.
fn open_rows(view: &View<'_>, plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = 0;
    let settle = |plan: &mut ForwardPlan, offsets: std::ops::Range<u32>| {
        for offset in offsets.filter(|offset| canvas.written_at(*offset) == step) {
            plan.rows.push((view.prompt + offset, 0));
        }
    };
    for lane in view.decoder.lanes() {
        settle(plan, next..lane.range.start);
        for offset in lane.range.start..lane.lookahead.end {
            let written = canvas.written_at(offset);
            if written == 0 || written == step {
                plan.rows.push((view.prompt + offset, 0));
            }
        }
        next = lane.lookahead.end;
    }
    settle(plan, next..canvas.len());
}

/// Plans a refresh if one is due (eq. 12); its logits serve the step's commits. Otherwise
/// begins a decode forward.
fn refreshes(compact: &Compact, view: &View<'_>, plan: &mut ForwardPlan) -> bool {
    let due = view.first
        || match compact.refresh {
            Refresh::Lane => view.lane_started,
            Refresh::Every(steps) => view.since_refresh >= steps,
            Refresh::Never => false,
        };
    if !due {
        plan.begin(ForwardKind::Decode);
        return false;
    }
    let rows = view
        .decoder
        .lanes()
        .map(|lane| lane.lookahead.end)
        .max()
        .unwrap_or(0);
    let reach = view.decoder.effective_len().saturating_add(compact.margin);
    let end = if view.first {
        rows
    } else {
        reach.min(view.decoder.canvas().len()).max(rows)
    };
    plan.full(view, view.prompt + end, Tables::SHARED);
    true
}
