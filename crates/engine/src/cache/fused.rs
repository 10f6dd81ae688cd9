//! One table, in which every row sees every slot that was ever written.

use decode::{AttentionKind, Decoder, ForwardKind, NameFilter, Proposal, SettingInfo, Value};

use super::compact::{self, Compact, MARGIN, REFRESH_COMMITS};
use super::near::Near;
use super::rows::{Sight, open_rows, see_written, sighted_rows};
use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, SHARED, View};

const ROWS: SettingInfo = compact::rows("open");
const REFRESH: SettingInfo = compact::refresh(Value::Integer(32));
const LEFT_ROWS: SettingInfo = SettingInfo::integer("left_rows", 0..=1024, 0)
    .says("every forward pass computes tokens again that lie up to this number of positions left of a mask");
const RIGHT_ROWS: SettingInfo = SettingInfo::integer("right_rows", 0..=1024, 0)
    .says("masks after the lanes that every forward pass computes as right context");
const COMMIT_ROWS: SettingInfo = SettingInfo::integer("commit_rows", 0..=64, 0)
    .says("every forward pass computes tokens again that lie up to this number of positions beside a token committed last");

const ROW_AHEAD: SettingInfo = SettingInfo::integer("row_ahead", 1..=1024, 24).says(
    "with rows near, masks have no row until a token is committed this number of positions left of them, or nearer",
);
const ROW_REACH: SettingInfo = SettingInfo::integer("row_reach", 1..=1024, 12).says(
    "with rows near, a commit gives masks a row again that lie up to this number of positions right of it, or up to a third of it left of it",
);

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "fused",
    summary: "one table, every written slot",
    paper: "AsyncLane, arXiv 2606.08411, with one table",
    settings: &[
        ROWS,
        REFRESH,
        REFRESH_COMMITS,
        MARGIN,
        LEFT_ROWS,
        RIGHT_ROWS,
        COMMIT_ROWS,
        ROW_AHEAD,
        ROW_REACH,
    ],
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
        let near = || Near::new(settings.count(&ROW_AHEAD), settings.count(&ROW_REACH));
        Box::new(Fused {
            compact: compact.reaching(sight.right, input.schedule),
            sight,
            near: (settings.name(&ROWS) == "near").then(near),
            has_margin: settings.value(&MARGIN).is_some(),
        })
    },
};

/// One table: every row sees every slot that was ever written.
#[derive(Clone, Debug)]
struct Fused {
    compact: Compact,
    /// The rows of a forward.
    sight: Sight,
    /// The masks that have a row; all of them if there is nothing here, and under a grammar.
    near: Option<Near>,
    /// A refresh renews as far as the margin says, not as far as masks have had rows.
    has_margin: bool,
}

impl CachePolicy for Fused {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        self.compact.kind(view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        let canvas = view.decoder.canvas();
        let near = self.near.as_ref().filter(|_| !view.decoder.is_constrained());
        if let Some(near) = near
            && !self.has_margin
            && self.kind(view) != ForwardKind::Decode
        {
            return plan.full(view, view.place(near.end(canvas)), SHARED);
        }
        if self.compact.refreshes(view, plan) {
            return;
        }
        match self.sight == Sight::default() {
            true => open_rows(view, &[], plan),
            false => sighted_rows(view, self.sight, plan),
        }
        if let Some(near) = near {
            plan.rows.retain(|row| {
                let mask =
                    view.layout.offset_of(row.place).filter(|offset| canvas.is_mask(*offset));
                mask.is_none_or(|offset| near.is_due(offset))
            });
        }
        see_written(view, plan);
        plan.push_branches(view);
    }

    fn observe(&mut self, _kind: ForwardKind, decoder: &Decoder, scored: &[Proposal]) {
        if let Some(near) = &mut self.near {
            near.observe(decoder, scored);
        }
    }
}
