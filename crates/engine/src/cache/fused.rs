//! One table, in which every row sees every slot that was ever written.

use decode::{AttentionKind, Company, ForwardKind, Place, SettingInfo, Value};

use super::compact::{self, Compact, MARGIN};
use super::rows::{open_rows, see_written};
use super::{CacheInfo, CachePolicy, ForwardPlan, View};

const ROWS: SettingInfo = compact::rows("open");
const REFRESH: SettingInfo = compact::refresh(Value::Integer(32));

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fused",
    summary: "one table, every written slot",
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

/// One table: every row sees every slot that was ever written.
#[derive(Clone, Copy, Debug)]
struct Fused {
    compact: Compact,
    /// Leave out rows that cannot change anything.
    open: bool,
}

impl CachePolicy for Fused {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        self.compact.kind(view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if self.compact.refreshes(view, plan) {
            return;
        }
        if self.open {
            open_rows(view, &[], plan);
        } else {
            for lane in view.decoder.lanes() {
                let offsets = lane.range.start.to(lane.lookahead.end);
                plan.push_range(view.places(offsets), Place::ZERO);
            }
        }
        see_written(view, plan);
    }
}
