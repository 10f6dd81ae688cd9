//! How a commit rule describes itself.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{CommitRule, Filter, MOST_CHECKED};
use crate::describe::{AttentionKind, Capability, Company, Configured, Fault, Feature};
use crate::settings::{SettingInfo, Settings};

/// A commit rule with a value for each of its settings.
pub type CommitConfig = Configured<CommitInfo>;

/// Everything the server, the engine and the documents know about a commit rule.
#[derive(Clone, Copy, Debug)]
pub struct CommitInfo {
    /// `commit` of a request.
    pub name: &'static str,
    /// What it commits, in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Where it is known to do something else than the published code; empty if nowhere.
    pub differs: &'static str,
    /// The settings it reads.
    pub settings: &'static [SettingInfo],
    /// What it requires of schedule, cache policy, model and request.
    pub requires: Requirements,
    /// The rule with these settings.
    pub build: fn(&Settings, &CommitInput<'_>) -> Box<dyn CommitRule>,
}

/// What a commit rule requires.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// The schedules it goes with.
    pub schedules: Company,
    /// The cache policies it goes with, among those that its schedules go with.
    pub caches: Company,
    /// The attention that the weights may have.
    pub attention: &'static [AttentionKind],
    /// Request features it does not support.
    pub excludes: &'static [Feature],
    /// What the model must bring under these settings.
    pub needs: fn(&Settings) -> Option<Capability>,
    /// Whether these settings suit the model and the schedule.
    pub suits: fn(&Settings, &CommitHost<'_>) -> Result<(), Fault>,
    /// Guessed canvases that a forward runs over beside the real one, at most.
    pub branches: fn(&Settings) -> u32,
    /// Steps of a lane of so many offsets that commit nothing, at most.
    pub idle: fn(&Settings, u32) -> u32,
    /// Whether forwards check its guesses, which takes weights that predict a mask at its own row, and
    /// rows beside those of the canvas.
    pub checks: bool,
}

/// What a rule is built from besides its settings.
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

impl Requirements {
    /// Those of a rule that reads nothing but the masks of its lane: it goes with everything.
    pub const NONE: Self = Self {
        schedules: Company::Any,
        caches: Company::Any,
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

    /// Guessed canvases that a forward may run over beside the real one, at most.
    pub fn branches(&self) -> u32 {
        (self.info().requires.branches)(self.settings())
    }

    /// Guesses that a forward checks, at most.
    pub fn checked(&self) -> u32 {
        match self.info().requires.checks {
            true => MOST_CHECKED,
            false => 0,
        }
    }

    /// Steps of a lane of `length` offsets that commit nothing, at most.
    pub fn idle(&self, length: u32) -> u32 {
        (self.info().requires.idle)(self.settings(), length)
    }
}
