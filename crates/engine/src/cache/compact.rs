//! Cache policies of AsyncLane (§4): snapshot, fresh and fused, with compact refresh.

use decode::{
    Fault, ForwardKind, Offset, Place, ScheduleConfig, SettingDefault, SettingInfo, SettingKind,
    Settings, Span, UNBOUNDED, Value,
};

use super::{CachePolicy, ForwardPlan, PlanRow, Tables, View};
use crate::layout::slot_of;

/// Which rows of the lanes a forward computes.
pub(super) const fn rows(default: &'static str) -> SettingInfo {
    SettingInfo::name("rows", &["all", "open"], default)
        .says("rows of a forward: all of the lanes, or masks and tokens committed last")
}

/// When K/V are renewed.
pub(super) const fn refresh(default: Value<'static>) -> SettingInfo {
    SettingInfo {
        name: "refresh",
        kind: SettingKind::NameOrInteger(&["lane", "never"], 1, UNBOUNDED),
        default: SettingDefault::Value(default),
        summary: "when K/V are renewed: at every lane start, never, or after so many forwards",
    }
}

/// m of AsyncLane eq. 12.
pub(super) const MARGIN: SettingInfo = SettingInfo::integer("refresh_margin", 0..=1024, 0)
    .derived("as far as the lanes of the schedule reach")
    .says("positions behind the furthest valid token that a refresh renews");

/// Compact refresh (AsyncLane eq. 12): renews `[0, P + Leff + margin)` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compact {
    /// When.
    refresh: Refresh,
    /// m: positions behind the furthest lane's valid tokens, at least as many as the lanes reach.
    margin: u32,
}

/// When cached K/V are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refresh {
    /// Whenever a generate lane starts, by fork or spawn.
    Lane,
    /// After this many forwards without one; 0 = every forward is a refresh.
    Every(u32),
    /// Only the first forward.
    Never,
}

impl Compact {
    /// As the settings of a policy say.
    pub(super) fn read(of: &Settings, refresh: &SettingInfo, schedule: &ScheduleConfig) -> Self {
        Self {
            refresh: match of.value(refresh) {
                Some(Value::Name("never")) => Refresh::Never,
                Some(Value::Integer(_)) => Refresh::Every(of.count(refresh)),
                _ => Refresh::Lane,
            },
            margin: margin(of, schedule),
        }
    }
}

/// The margin that the settings say, else as far as the lanes of the schedule reach.
pub(super) fn margin(of: &Settings, schedule: &ScheduleConfig) -> u32 {
    let margin = of.value(&MARGIN).and_then(|margin| margin.as_count());
    margin.unwrap_or_else(|| schedule.reach())
}

/// Refuses a margin that lanes of the schedule exceed.
pub(super) fn check_margin(of: &Settings, schedule: &ScheduleConfig) -> Result<(), Fault> {
    let (margin, reach, name) = (margin(of, schedule), schedule.reach(), schedule.name());
    if margin >= reach {
        return Ok(());
    }
    Err(Fault {
        setting: MARGIN.name,
        message: format!(
            "must be at least {reach}, as far as lanes of schedule {name} reach, got {margin}"
        ),
    })
}

/// Refuses open rows where every lane reads up to its own end only.
pub(super) fn refuse_open(of: &Settings, rows: &SettingInfo, name: &str) -> Result<(), Fault> {
    match of.name(rows) {
        "open" => Err(Fault {
            setting: rows.name,
            message: format!("open needs cache fused, got cache {name}"),
        }),
        _ => Ok(()),
    }
}

/// A lane sees its prefix, itself and its lookahead, nothing to the right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) compact: Compact,
    /// Snapshot: a fork clones the page table and lanes write to pages of their own. Otherwise
    /// (fresh) a lane reads the current K/V of a prefix that is still being refined.
    pub(crate) private: bool,
}

impl CachePolicy for Lanes {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        kind(&self.compact, view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if refreshes(&self.compact, view, plan) {
            return;
        }
        for lane in view.decoder.lanes() {
            let end = view.layout.place_of(lane.lookahead.end);
            plan.push_range(view.layout.place_of(lane.range.start).to(end), end);
            if self.private {
                plan.close(lane.id);
            }
        }
        if !self.private {
            plan.close(Tables::SHARED);
        }
    }

    fn private_tables(&self) -> bool {
        self.private
    }
}

/// One table: every row sees every slot that was ever written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fused {
    pub(crate) compact: Compact,
    /// Leave out rows that cannot change anything.
    pub(crate) open: bool,
}

impl CachePolicy for Fused {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        kind(&self.compact, view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if refreshes(&self.compact, view, plan) {
            return;
        }
        if self.open {
            open_rows(view, &[], plan);
        } else {
            for lane in view.decoder.lanes() {
                let offsets = lane.range.start.to(lane.lookahead.end);
                plan.push_range(view.layout.places_of(offsets), Place::ZERO);
            }
        }
        see_written(view, plan);
    }
}

/// Lets every row see every written slot, and ends the only segment.
pub(super) fn see_written(view: &View<'_>, plan: &mut ForwardPlan) {
    let last = plan.rows.last().map_or(Place::ZERO, |row| row.place.next());
    let visible_end = slot_of(last.max(view.written).min(view.end()));
    for row in &mut plan.rows {
        row.visible_end = visible_end;
    }
    plan.close(Tables::SHARED);
}

/// Masks of the lanes and their lookaheads, tokens committed in the last step (each committed
/// token is forwarded once, so that its K/V hold the token and not the mask), and the offsets
/// `tracked`, ascending.
pub(super) fn open_rows(view: &View<'_>, tracked: &[Offset], plan: &mut ForwardPlan) {
    let canvas = view.decoder.canvas();
    let step = view.decoder.step();
    let mut next = Offset::ZERO;
    let is_tracked = |offset: Offset| tracked.binary_search(&offset).is_ok();
    // Left and right of the lanes only few offsets can be of interest, and a canvas is long.
    let from = tracked.first().copied().unwrap_or(view.fresh.start);
    let to = tracked.last().map_or(Offset::ZERO, |offset| offset.next());
    let noted = from.min(view.fresh.start).to(to.max(view.fresh.end));
    debug_assert!(
        (canvas.span().iter()).all(|at| canvas.written_at(at) != step || noted.contains(at)),
        "the last step wrote inside {:?}",
        view.fresh
    );
    let settle = |plan: &mut ForwardPlan, offsets: Span<Offset>| {
        let fresh = |offset: &Offset| canvas.written_at(*offset) == step || is_tracked(*offset);
        for offset in offsets.intersect(noted).iter().filter(fresh) {
            plan.rows
                .push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
        }
    };
    for lane in view.decoder.lanes() {
        settle(plan, next.to(lane.range.start));
        for offset in lane.range.start.to(lane.lookahead.end) {
            let written = canvas.written_at(offset);
            if written == 0 || written == step || is_tracked(offset) {
                plan.rows
                    .push(PlanRow::at(view.layout.place_of(offset), Place::ZERO));
            }
        }
        next = lane.lookahead.end;
    }
    settle(plan, next.to(canvas.end()));
}

/// What the next forward is: a refresh if one is due (eq. 12).
fn kind(compact: &Compact, view: &View<'_>) -> ForwardKind {
    view.kind(match compact.refresh {
        Refresh::Lane => view.lane_started,
        Refresh::Every(steps) => view.since_refresh >= steps,
        Refresh::Never => false,
    })
}

/// Plans a refresh if one is due; its logits serve the step's commits. Otherwise begins a decode
/// forward.
fn refreshes(compact: &Compact, view: &View<'_>, plan: &mut ForwardPlan) -> bool {
    if kind(compact, view) != ForwardKind::Decode {
        renew(compact.margin, view, plan);
        return true;
    }
    plan.begin(ForwardKind::Decode);
    false
}

/// Plans a refresh of `[0, P + Leff + margin)`, the first forward up to the last lane's end.
pub(super) fn renew(margin: u32, view: &View<'_>, plan: &mut ForwardPlan) {
    let rows = view
        .decoder
        .lanes()
        .map(|lane| lane.lookahead.end)
        .max()
        .unwrap_or_default();
    let reach = view.decoder.effective_end().plus(margin);
    let end = if view.first {
        rows
    } else {
        reach.min(view.decoder.canvas().end()).max(rows)
    };
    plan.full(view, view.layout.place_of(end), Tables::SHARED);
}
