//! One table, in which a lane reads the current K/V of a prefix that is still being refined.

use decode::{AttentionKind, Company, SettingInfo, Value};

use super::CacheInfo;
use super::compact::{self, Compact, Lanes, MARGIN};

const ROWS: SettingInfo = compact::rows("all");
const REFRESH: SettingInfo = compact::refresh(Value::Name("lane"));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fresh",
    summary: "one table, a lane sees up to its own end",
    paper: "AsyncLane, arXiv 2606.08411",
    settings: &[ROWS, REFRESH, MARGIN],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: |of, schedule| {
        compact::refuse_open(of, &ROWS, "fresh")?;
        compact::check_margin(of, schedule)
    },
    pages: |of| of.shared_table(of.budget),
    build: |of, input| {
        let (compact, private) = (Compact::read(of, &REFRESH, input.schedule), false);
        Box::new(Lanes { compact, private })
    },
};
