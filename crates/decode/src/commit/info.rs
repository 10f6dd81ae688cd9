//! The description of a commit rule.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{CommitRule, MOST_CHECKED};
use crate::describe::{AttentionKind, Capability, Configured, Fault, Feature, NameFilter, Rows};
use crate::filter::Filter;
use crate::settings::{SettingInfo, Settings};

/// A commit rule with a value for each of its settings.
pub type CommitConfig = Configured<CommitInfo>;

/// Everything the server, the engine and the documents know about a commit rule.
#[derive(Clone, Copy, Debug)]
pub struct CommitInfo {
    /// `commit` of a request.
    pub name: &'static str,
    /// The masks that it commits, in one line.
    pub summary: &'static str,
    /// The paper or project that published it.
    pub paper: &'static str,
    /// Known differences from the published code; empty if there are none.
    pub differs: &'static str,
    /// The settings it reads.
    pub settings: &'static [SettingInfo],
    /// Its requirements of schedule, cache policy, model and request.
    pub requires: Requirements,
    /// Builds the rule with these settings.
    pub build: fn(&Settings, &CommitInput<'_>) -> Box<dyn CommitRule>,
}

/// The requirements of a commit rule.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// The schedules it goes with.
    pub schedules: NameFilter,
    /// The rows that every forward must compute.
    pub rows: Rows,
    /// The attention that the weights may have.
    pub attention: &'static [AttentionKind],
    /// Request features it does not support.
    pub excludes: &'static [Feature],
    /// The capability that the model must have under these settings.
    pub needs: fn(&Settings) -> Option<Capability>,
    /// Refuses settings that do not suit the model and the schedule.
    pub suits: fn(&Settings, &CommitHost<'_>) -> Result<(), Fault>,
    /// Most guessed canvases that a forward runs over beside the real one.
    pub branches: fn(&Settings) -> u32,
    /// Most steps that commit nothing in a lane of this number of offsets.
    pub idle: fn(&Settings, u32) -> u32,
    /// True if forwards check its guesses, which takes weights that predict a mask at its own row, and
    /// rows beside those of the canvas.
    pub checks: bool,
}

/// The inputs of a rule other than its settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitInput<'a> {
    /// The filter network trained for the model, if one was loaded.
    pub filter: Option<&'a Arc<Filter>>,
    /// The sequence's seed.
    pub seed: u64,
    /// Offsets of a block, where the schedule has a setting for it.
    pub block_length: Option<u32>,
}

/// The model and the schedule that a rule is asked to work with.
#[derive(Clone, Copy, Debug)]
pub struct CommitHost<'a> {
    /// Block length of the filter network trained for the model, if one was loaded.
    pub filter: Option<u32>,
    /// The settings of the schedule.
    pub schedule: &'a Settings,
}

/// The schedules of rules that decide about a block as a whole.
pub(super) const BLOCKS: NameFilter = NameFilter::Only(&["block_wise"]);

impl Requirements {
    /// The requirements of a rule that reads nothing but the masks of its lane: it goes with everything.
    pub const NONE: Self = Self {
        schedules: NameFilter::Any,
        rows: Rows::Open,
        attention: AttentionKind::MASKED,
        excludes: &[],
        needs: |_| None,
        suits: |_, _| Ok(()),
        branches: |_| 0,
        idle: |_, _| 0,
        checks: false,
    };
}

crate::describe!(CommitInfo, "commit");

impl CommitConfig {
    /// The rule with these settings.
    pub fn build(&self, input: &CommitInput<'_>) -> Box<dyn CommitRule> {
        (self.info().build)(self.settings(), input)
    }

    /// Most guessed canvases that a forward may run over beside the real one.
    pub fn branches(&self) -> u32 {
        (self.info().requires.branches)(self.settings())
    }

    /// Most guesses that a forward checks.
    pub fn checked(&self) -> u32 {
        match self.info().requires.checks {
            true => MOST_CHECKED,
            false => 0,
        }
    }

    /// Most steps that commit nothing in a lane of `length` offsets.
    pub fn idle(&self, length: u32) -> u32 {
        (self.info().requires.idle)(self.settings(), length)
    }
}
