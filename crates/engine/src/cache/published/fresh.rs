//! One table, in which a lane reads the current K/V of a prefix that is still being refined.

use decode::{AttentionKind, NameFilter};

use crate::cache::leftward::{self, Leftward};
use crate::cache::{CacheInfo, Forwards};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fresh",
    summary: "one table, up to the lane's own end",
    paper: "AsyncLane, arXiv 2606.08411",
    settings: leftward::SETTINGS,
    schedules: NameFilter::Only(&["asynclane"]),
    forwards: Forwards::OPEN,
    attention: &[AttentionKind::Full],
    check: |settings, schedule| leftward::check("fresh", settings, schedule),
    pages: |footprint| footprint.shared_table(footprint.budget),
    build: |settings, input| Box::new(Leftward::new(settings, input, false)),
};
