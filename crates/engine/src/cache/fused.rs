//! One table, in which every row sees every slot that was ever written.

use decode::{AttentionKind, Company, SettingInfo, Value};

use super::CacheInfo;
use super::compact::{self, Compact, Fused, MARGIN};

const ROWS: SettingInfo = compact::rows("open");
const REFRESH: SettingInfo = compact::refresh(Value::Integer(32));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fused",
    summary: "one table, every row sees every written slot",
    paper: "AsyncLane, arXiv 2606.08411, with one table",
    settings: &[ROWS, REFRESH, MARGIN],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: compact::check_margin,
    pages: |of| of.shared_table(of.budget),
    build: |of, input| {
        Box::new(Fused {
            compact: Compact::read(of, &REFRESH, input.schedule),
            open: of.name(&ROWS) == "open",
        })
    },
};
