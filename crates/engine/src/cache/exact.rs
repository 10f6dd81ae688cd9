//! Exact K/V: what is committed left of the frontier never changes for weights that look back only.

use decode::{ForwardKind, LaneView};

use super::{CachePolicy, ForwardPlan, PlanRow, Tables, View};

/// Causal weights (WeDLM §3): committed tokens in front by position, then masks by position, each
/// at its own position and seeing the rows before it. The run of committed tokens that begins at
/// the first unsealed place comes first, so it lies in its final slots: it is forwarded once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Causal;

impl CachePolicy for Causal {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        plan.begin(self.kind(view));
        let (prompt, canvas) = (view.prompt, view.decoder.canvas());
        plan.rows
            .extend((view.sealed..prompt).map(|place| PlanRow::at(place, place + 1)));
        let mut slot = view.sealed.max(prompt);
        let from = slot - prompt;
        let mut push = |offset: u32| {
            plan.rows.push(PlanRow {
                place: prompt + offset,
                slot,
                visible: slot + 1,
            });
            slot += 1;
        };
        let filled = |offset: &u32| canvas.get(*offset).is_some();
        (from..last(view)).filter(filled).for_each(&mut push);
        for lane in view.decoder.lanes() {
            let masks = lane.range.start.max(from)..end(&lane);
            masks.filter(|at| !filled(at)).for_each(&mut push);
        }
        plan.close(Tables::SHARED);
        plan.sealed = prompt + canvas.emitted();
    }
}

/// Block-causal weights (SDAR, LLaDA2): a row sees its own block of positions and all before it. A
/// block is sealed by the first forward behind its last commit, which is the next block's too, or,
/// where predictions are read a row before (Fast-dLLM v2), tells the next block's first token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Positions of a block, at least 1.
    pub(crate) length: u32,
}

impl CachePolicy for Blocks {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        plan.begin(self.kind(view));
        let block_end = |place: u32| (place / self.length + 1).saturating_mul(self.length);
        // The weights know blocks that are whole, masks and all; the last row that is read is in
        // the last of them.
        let read = (view.prompt + last(view)).saturating_sub(1 + u32::from(view.shifted));
        let end = block_end(read).min(view.end());
        // The prediction for a block's first position is read at the last row before it.
        let before = view.shifted && view.wants(view.sealed);
        let from = view.sealed - u32::from(before && view.sealed > 0);
        let rows = (from..end).map(|place| PlanRow::at(place, block_end(place).min(end)));
        plan.rows.extend(rows);
        plan.close(Tables::SHARED);
        let settled = view.prompt + view.decoder.canvas().emitted();
        plan.sealed = settled - settled % self.length;
    }
}

/// Offset behind the last one that a forward is about.
fn last(view: &View<'_>) -> u32 {
    view.decoder
        .lanes()
        .map(|lane| end(&lane))
        .max()
        .unwrap_or(0)
}

/// End of the offsets of a lane that are scored: nothing sees a mask behind them.
fn end(lane: &LaneView) -> u32 {
    match lane.drafts {
        true => lane.lookahead.end.max(lane.range.end),
        false => lane.range.end,
    }
}
