//! One table, in which every row sees every slot that was ever written.

use decode::{AttentionKind, ForwardKind, NameFilter, SettingInfo, Value};

use super::compact::{self, Compact, MARGIN, REFRESH_COMMITS};
use super::rows::{Sight, open_rows, see_written, sighted_rows};
use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, View};

const ROWS: SettingInfo = compact::rows("open");
const REFRESH: SettingInfo = compact::refresh(Value::Integer(32));
const LEFT_ROWS: SettingInfo = SettingInfo::integer("left_rows", 0..=1024, 0)
    .says("every forward pass computes tokens again that lie up to this number of positions left of a mask");
const RIGHT_ROWS: SettingInfo = SettingInfo::integer("right_rows", 0..=1024, 0)
    .says("masks after the lanes that every forward pass computes as right context");
const COMMIT_ROWS: SettingInfo = SettingInfo::integer("commit_rows", 0..=64, 0)
    .says("every forward pass computes tokens again that lie up to this number of positions beside a token committed last");

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fused",
    summary: "one table, every written slot",
    paper: "AsyncLane, arXiv 2606.08411, with one table",
    settings: &[ROWS, REFRESH, REFRESH_COMMITS, MARGIN, LEFT_ROWS, RIGHT_ROWS, COMMIT_ROWS],
    schedules: NameFilter::Only(&["asynclane", "block_wise"]),
    forwards: Forwards { branches: true, ..Forwards::OPEN },
    attention: &[AttentionKind::Full],
    check: compact::check_margin,
    // A guessed canvas may have a version of the prompt's rows too.
    pages: |footprint| footprint.shared_table(footprint.prompt + footprint.budget),
    build: |settings, input| {
        let sight = Sight {
            all: settings.name(&ROWS) == "all",
            left: settings.count(&LEFT_ROWS),
            right: settings.count(&RIGHT_ROWS),
            beside: settings.count(&COMMIT_ROWS),
        };
        let margin = compact::margin(settings, input.schedule);
        let compact = Compact::read(settings, &REFRESH, margin);
        Box::new(Fused { compact: compact.reaching(sight.right, input.schedule), sight })
    },
};

/// One table: every row sees every slot that was ever written.
#[derive(Clone, Copy, Debug)]
struct Fused {
    compact: Compact,
    /// The rows of a forward.
    sight: Sight,
}

impl CachePolicy for Fused {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        self.compact.kind(view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if self.compact.refreshes(view, plan) {
            return;
        }
        match self.sight == Sight::default() {
            true => open_rows(view, &[], plan),
            false => sighted_rows(view, self.sight, plan),
        }
        see_written(view, plan);
        plan.push_branches(view);
    }
}
