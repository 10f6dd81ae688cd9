//! Lanes that see nothing to their right, over compact refreshes: `fresh` and `snapshot`.

use decode::{Fault, ForwardKind, ScheduleConfig, SettingInfo, Settings, Value};

use super::compact::{self, Compact, MARGIN, REFRESH_COMMITS};
use super::{CacheInput, CachePolicy, ForwardPlan, SHARED, View};

const ROWS: SettingInfo = compact::rows("all");
const REFRESH: SettingInfo = compact::refresh(Value::Name("lane"));

/// The settings of these policies.
pub(in crate::cache) const SETTINGS: &[SettingInfo] = &[ROWS, REFRESH, REFRESH_COMMITS, MARGIN];

/// Returns true if the settings of the policy `name` go with each other and with the schedule.
pub(in crate::cache) fn check(
    name: &'static str,
    settings: &Settings,
    schedule: &ScheduleConfig,
) -> Result<(), Fault> {
    compact::refuse_open(settings, &ROWS, name)?;
    compact::check_margin(settings, schedule)
}

/// A lane sees its prefix, itself and its lookahead.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Leftward {
    compact: Compact,
    /// Every lane writes to pages of its own.
    private: bool,
}

impl Leftward {
    /// As the settings say.
    pub(in crate::cache) fn new(
        settings: &Settings,
        input: &CacheInput<'_>,
        private: bool,
    ) -> Self {
        let margin = compact::margin(settings, input.schedule);
        Self { compact: Compact::read(settings, &REFRESH, margin), private }
    }
}

impl CachePolicy for Leftward {
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
            if self.private {
                plan.close(lane.id);
            }
        }
        if !self.private {
            plan.close(SHARED);
        }
    }

    fn private_tables(&self) -> bool {
        self.private
    }
}
