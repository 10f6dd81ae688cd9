//! The description of a lane schedule.

use alloc::boxed::Box;

use super::LaneSchedule;
use crate::describe::{AttentionKind, Configured, Fault};
use crate::settings::{SettingInfo, Settings};

/// A lane schedule with a value for each of its settings.
pub type ScheduleConfig = Configured<ScheduleInfo>;

/// Everything the server, the engine and the documents know about a lane schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleInfo {
    /// `schedule` of a request.
    pub name: &'static str,
    /// The lanes that it runs, in one line.
    pub summary: &'static str,
    /// The paper or project that published it.
    pub paper: &'static str,
    /// Known differences from the published code; empty if there are none.
    pub differs: &'static str,
    /// The settings it reads.
    pub settings: &'static [SettingInfo],
    /// The attention that the weights may have.
    pub attention: &'static [AttentionKind],
    /// The properties that cache policies and the engine rely on.
    pub shape: Shape,
    /// Builds the schedule with these settings.
    pub build: fn(&Settings) -> Box<dyn LaneSchedule>,
}

/// The properties that cache policies and the engine rely on, by the settings of the schedule.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Refuses settings that do not go with each other.
    pub check: fn(&Settings) -> Result<(), Fault>,
    /// Most lanes active at once.
    pub max_lanes: fn(&Settings) -> u32,
    /// Most offsets of a lane; `None` = as many as the canvas has.
    pub longest_lane: fn(&Settings) -> Option<u32>,
    /// Fewest offsets after the furthest valid token that a compact refresh renews.
    pub reach: fn(&Settings) -> u32,
    /// Most drafts that a step verifies; above 0, the schedule needs a draft model or copies.
    pub drafts: fn(&Settings) -> u32,
    /// Number of last tokens of the text that must recur in it before drafts are copied from it;
    /// `None` = drafts come from a draft model.
    pub copies: fn(&Settings) -> Option<u32>,
    /// True if it may fill the whole canvas (`early_stop` false).
    pub fills_canvas: bool,
    /// True if it finishes one block before it begins the next one.
    pub in_blocks: bool,
    /// Cache policies that it goes with in addition to those that name it.
    pub caches: &'static [&'static str],
}

impl Shape {
    /// One lane of any length; generation ends at the first stop token.
    pub const ONE_LANE: Self = Self {
        check: |_| Ok(()),
        max_lanes: |_| 1,
        longest_lane: |_| None,
        reach: |_| 0,
        drafts: |_| 0,
        copies: |_| None,
        fills_canvas: false,
        in_blocks: false,
        caches: &[],
    };
}

crate::describe!(ScheduleInfo, "schedule");

impl ScheduleConfig {
    /// The schedule with these settings.
    pub fn build(&self) -> Box<dyn LaneSchedule> {
        (self.info().build)(self.settings())
    }

    /// Most lanes active at once.
    pub fn max_lanes(&self) -> u32 {
        (self.info().shape.max_lanes)(self.settings())
    }

    /// Most offsets of a lane on a canvas of `budget` offsets.
    pub fn longest_lane(&self, budget: u32) -> u32 {
        let longest = (self.info().shape.longest_lane)(self.settings());
        longest.map_or(budget, |longest| longest.min(budget))
    }

    /// Most drafts that a step verifies.
    pub fn drafts(&self) -> u32 {
        (self.info().shape.drafts)(self.settings())
    }

    /// Number of last tokens of the text that must recur in it before drafts are copied from it; `None`
    /// if drafts are not copied.
    pub fn copies(&self) -> Option<u32> {
        (self.info().shape.copies)(self.settings())
    }

    /// Returns true if drafts come from a draft model.
    pub fn needs_draft_model(&self) -> bool {
        self.drafts() > 0 && self.copies().is_none()
    }

    /// Fewest offsets after the furthest valid token that a compact refresh renews.
    pub fn reach(&self) -> u32 {
        (self.info().shape.reach)(self.settings())
    }
}
