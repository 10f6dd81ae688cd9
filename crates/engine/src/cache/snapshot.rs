//! Fork snapshots (AsyncLane §4): lanes write to pages of their own.

use decode::{AttentionKind, Company, SettingInfo, Value};

use super::compact::{self, Compact, Lanes, MARGIN};
use super::{CacheInfo, Footprint};

const ROWS: SettingInfo = compact::rows("all");
const REFRESH: SettingInfo = compact::refresh(Value::Name("lane"));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "snapshot",
    summary: "a fork clones the page table, lanes write to pages of their own",
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
        let (compact, private) = (Compact::read(of, &REFRESH, input.schedule), true);
        Box::new(Lanes { compact, private })
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
