//! One table, in which a lane reads the current K/V of a prefix that is still being refined.

use decode::{AttentionKind, Company};

use crate::cache::leftward::{self, Leftward};
use crate::cache::{CacheInfo, Forwards};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fresh",
    summary: "one table, up to the lane's own end",
    paper: "AsyncLane, arXiv 2606.08411",
    settings: leftward::SETTINGS,
    schedules: Company::Only(&["asynclane"]),
    forwards: Forwards::OPEN,
    attention: &[AttentionKind::Full],
    check: |of, schedule| leftward::check("fresh", of, schedule),
    pages: |of| of.shared_table(of.budget),
    build: |of, input| Box::new(Leftward::new(of, input, false)),
};
