//! One table, in which a lane reads the current K/V of a prefix that is still being refined.

use decode::{AttentionKind, Company, ForwardKind, SettingInfo, Value};

use super::compact::{self, Compact, MARGIN};
use super::{CacheInfo, CachePolicy, ForwardPlan, SHARED, View};

const ROWS: SettingInfo = compact::rows("all");
const REFRESH: SettingInfo = compact::refresh(Value::Name("lane"));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fresh",
    summary: "one table, up to the lane's own end",
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
        let compact = Compact::read(of, &REFRESH, input.schedule);
        Box::new(Fresh { compact })
    },
};

/// A lane sees its prefix, itself and its lookahead, nothing to the right. It reads the current K/V
/// of a prefix that is still being refined.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    compact: Compact,
}

impl CachePolicy for Fresh {
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
        }
        plan.close(SHARED);
    }
}
