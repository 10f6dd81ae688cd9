//! Fork snapshots (AsyncLane §4): lanes write to pages of their own.

use decode::{AttentionKind, Company, ForwardKind, SettingInfo, Value};

use super::compact::{self, Compact, MARGIN};
use super::{CacheInfo, CachePolicy, Footprint, ForwardPlan, View};

const ROWS: SettingInfo = compact::rows("all");
const REFRESH: SettingInfo = compact::refresh(Value::Name("lane"));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "snapshot",
    summary: "the lane's own table: a fork clones the page table",
    paper: "AsyncLane, arXiv 2606.08411",
    settings: &[ROWS, REFRESH, MARGIN],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: |of, schedule| {
        compact::refuse_open(of, &ROWS, "snapshot")?;
        compact::check_margin(of, schedule)
    },
    pages,
    build: |of, input| {
        let compact = Compact::read(of, &REFRESH, input.schedule);
        Box::new(Snapshot { compact })
    },
};

/// A slot of the generation lives in at most two versions, the lane's own and the one that its
/// successors read, and every lane may own one more page at its border.
fn pages(of: &Footprint<'_>) -> u32 {
    // Every refine lane owns at least one offset, and reads the row before it.
    let borders = 2 + of.readers();
    let lanes = of.schedule.max_lanes().min(of.budget) + 1;
    of.table() + of.budget.div_ceil(of.page_size) + borders * lanes
}

/// A lane sees its prefix, itself and its lookahead, nothing to the right. A fork clones the page
/// table, and lanes write to pages of their own.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    compact: Compact,
}

impl CachePolicy for Snapshot {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        self.compact.kind(view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if self.compact.refreshes(view, plan) {
            return;
        }
        for lane in view.decoder.lanes() {
            let places = view.places(lane.range.start.to(lane.lookahead.end));
            plan.push_range(places, places.end);
            plan.close(lane.id);
        }
    }

    fn private_tables(&self) -> bool {
        true
    }
}
