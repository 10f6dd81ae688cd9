//! Fork snapshots (AsyncLane §4): a fork clones the page table, lanes write to pages of their own.

use decode::{AttentionKind, NameFilter};

use super::leftward::{self, Leftward};
use super::{CacheInfo, Footprint, Forwards};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "snapshot",
    summary: "the lane's own table: a fork clones the page table",
    paper: "AsyncLane, arXiv 2606.08411",
    settings: leftward::SETTINGS,
    schedules: NameFilter::Only(&["asynclane"]),
    forwards: Forwards::OPEN,
    attention: &[AttentionKind::Full],
    check: |settings, schedule| leftward::check("snapshot", settings, schedule),
    pages,
    build: |settings, input| Box::new(Leftward::new(settings, input, true)),
};

/// A slot of the generation lives in at most two versions, the lane's own and the one that its
/// successors read, and every lane may own one more page at its border.
fn pages(footprint: &Footprint<'_>) -> u32 {
    // Every refine lane owns at least one offset, and reads the row before it.
    let borders = 2 + footprint.readers();
    let lanes = footprint.schedule.max_lanes().min(footprint.budget) + 1;
    footprint.table() + footprint.budget.div_ceil(footprint.page_size) + borders * lanes
}
