//! Compact refresh (AsyncLane eq. 12), which the policies of several lanes share: settings, when a
//! refresh is due, and which rows it renews.

use decode::{
    Fault, ForwardKind, ScheduleConfig, SettingDefault, SettingInfo, SettingKind, Settings,
    UNBOUNDED, Value,
};

use super::{ForwardPlan, SHARED, View};

/// The setting `rows`: the rows of the lanes that a forward computes.
pub(in crate::cache) const fn rows(default: &'static str) -> SettingInfo {
    SettingInfo::name("rows", &["all", "open", "near"], default)
        .says("rows of a forward pass: all of the lanes; masks and the tokens committed last; or masks near the last commits and these tokens")
}

/// When K/V are renewed.
pub(in crate::cache) const fn refresh(default: Value<'static>) -> SettingInfo {
    SettingInfo {
        name: "refresh",
        kind: SettingKind::NameOrInteger(&["lane", "never"], 1, UNBOUNDED),
        default: SettingDefault::Value(default),
        summary: "when K/V are renewed: at every lane start, never, or after this many forward passes",
    }
}

/// The number of commits that makes a refresh due.
pub(in crate::cache) const REFRESH_COMMITS: SettingInfo =
    SettingInfo::integer("refresh_commits", 1..=UNBOUNDED, 1)
        .derived("no limit")
        .says("tokens committed since the last refresh that make one due");

/// m of AsyncLane eq. 12.
pub(in crate::cache) const MARGIN: SettingInfo =
    SettingInfo::integer("refresh_margin", 0..=1024, 0)
        .derived("the reach of the schedule's lanes, which is also the minimum")
        .says("positions after the furthest valid token that a refresh renews");

/// Compact refresh (AsyncLane eq. 12): renews `[0, P + Leff + margin)` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compact {
    /// When.
    refresh: Refresh,
    /// Tokens committed since the last refresh that make one due as well; 0 = any number may be.
    commits: u32,
    /// m: positions after the furthest lane's valid tokens, at least as many as the lanes reach.
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
    /// As the settings of a policy say, with a margin of `margin` positions.
    pub(in crate::cache) fn read(settings: &Settings, refresh: &SettingInfo, margin: u32) -> Self {
        Self {
            refresh: match settings.value(refresh) {
                Some(Value::Name("never")) => Refresh::Never,
                Some(Value::Integer(_)) => Refresh::Every(settings.count(refresh)),
                _ => Refresh::Lane,
            },
            commits: settings
                .value(&REFRESH_COMMITS)
                .map_or(0, |_| settings.count(&REFRESH_COMMITS)),
            margin,
        }
    }

    /// Renews at least `right` offsets after the lanes.
    pub(in crate::cache) fn reaching(self, right: u32, schedule: &ScheduleConfig) -> Self {
        let margin = self.margin.max(schedule.reach() + right);
        Self { margin, ..self }
    }

    /// The kind of the next forward: a refresh if one is due (eq. 12).
    pub(in crate::cache) fn kind(&self, view: &View<'_>) -> ForwardKind {
        let due = match self.refresh {
            Refresh::Lane => view.lane_started,
            Refresh::Every(steps) => view.since_refresh >= steps,
            Refresh::Never => false,
        };
        view.kind(due || (self.commits > 0 && view.committed_since_refresh() >= self.commits))
    }

    /// Plans a refresh if one is due; its logits serve the step's commits. Otherwise begins a
    /// decode forward. Whether a refresh was due.
    pub(in crate::cache) fn refreshes(&self, view: &View<'_>, plan: &mut ForwardPlan) -> bool {
        if self.kind(view) != ForwardKind::Decode {
            renew(self.margin, view, plan);
            return true;
        }
        plan.begin(ForwardKind::Decode);
        false
    }
}

/// The margin that the settings say, else as far as the lanes of the schedule reach.
pub(in crate::cache) fn margin(settings: &Settings, schedule: &ScheduleConfig) -> u32 {
    let margin = settings.value(&MARGIN).and_then(|margin| margin.as_count());
    margin.unwrap_or_else(|| schedule.reach())
}

/// Refuses a margin that lanes of the schedule exceed.
pub(in crate::cache) fn check_margin(
    settings: &Settings,
    schedule: &ScheduleConfig,
) -> Result<(), Fault> {
    let (margin, reach, name) = (margin(settings, schedule), schedule.reach(), schedule.name());
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

/// Refuses rows of masks alone where every lane reads up to its own end only.
pub(in crate::cache) fn refuse_open(
    settings: &Settings,
    rows: &SettingInfo,
    name: &str,
) -> Result<(), Fault> {
    match settings.name(rows) {
        "all" => Ok(()),
        masks => Err(Fault {
            setting: rows.name,
            message: format!("{masks} needs cache fused, got cache {name}"),
        }),
    }
}

/// Plans a refresh of `[0, P + Leff + margin)`, and at least up to the last lane's end and the last
/// pinned token.
pub(in crate::cache) fn renew(margin: u32, view: &View<'_>, plan: &mut ForwardPlan) {
    let rows = view.decoder.lanes().map(|lane| lane.lookahead.end).max().unwrap_or_default();
    let canvas = view.decoder.canvas();
    let reach = view.decoder.effective_end().plus(margin).max(canvas.pins_end());
    let end = reach.min(canvas.end()).max(rows);
    plan.full(view, view.layout.place_of(end), SHARED);
}
