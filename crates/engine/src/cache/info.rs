//! The description of a cache policy.

use decode::{
    AttentionKind, Configured, Fault, NameFilter, Rows, ScheduleConfig, SettingInfo, Settings,
};
use step::{Attention, LogitShift};

use super::CachePolicy;

/// A cache policy with a value for each of its settings.
pub type CacheConfig = Configured<CacheInfo>;

/// Everything the server, the engine and the documents know about a cache policy.
#[derive(Clone, Copy, Debug)]
pub struct CacheInfo {
    /// `cache` of a request.
    pub name: &'static str,
    /// The K/V that a forward reads, in one line.
    pub summary: &'static str,
    /// The paper or project that published it.
    pub paper: &'static str,
    /// The settings it reads.
    pub settings: &'static [SettingInfo],
    /// The schedules it goes with.
    pub schedules: NameFilter,
    /// The properties of its forwards that commit rules and schedules rely on.
    pub forwards: Forwards,
    /// The attention that the weights may have.
    pub attention: &'static [AttentionKind],
    /// Refuses settings that do not go with each other or with the schedule.
    pub check: fn(&Settings, &ScheduleConfig) -> Result<(), Fault>,
    /// Most KV pages that a sequence can hold at once.
    pub pages: fn(&Footprint<'_>) -> u32,
    /// Builds the policy with these settings.
    pub build: fn(&Settings, &CacheInput<'_>) -> Box<dyn CachePolicy>,
}

/// The properties of the forwards of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwards {
    /// The rows that every forward computes.
    pub rows: Rows,
    /// True if a forward can run over guessed canvases beside the real one.
    pub branches: bool,
    /// True if a forward can check guesses.
    pub checks: bool,
    /// True if rows left of a block are computed by the forward that begins the block and by no other.
    pub from_block: bool,
    /// True if forwards read all masks up to the budget, which is then the length of the canvas.
    pub whole: bool,
}

impl Forwards {
    /// Forwards over open positions, without guesses.
    pub const OPEN: Self =
        Self { rows: Rows::Open, branches: false, checks: false, from_block: false, whole: false };
}

/// The inputs of a policy other than its settings.
#[derive(Clone, Copy, Debug)]
pub struct CacheInput<'a> {
    /// The rows that a row may attend to.
    pub attention: Attention,
    /// The schedule of the same sequence.
    pub schedule: &'a ScheduleConfig,
    /// Most rows of a chunk of a prompt; 0 = a prompt is not split.
    pub prefill_chunk: u32,
}

/// A sequence whose pages are counted before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Footprint<'a> {
    /// Slots of a KV page.
    pub page_size: u32,
    /// Tokens of prompt and suffix.
    pub prompt: u32,
    /// Most tokens of the generation.
    pub budget: u32,
    /// The rows that a row may attend to.
    pub attention: Attention,
    /// The row that predicts a position.
    pub logit_shift: LogitShift,
    /// The schedule.
    pub schedule: &'a ScheduleConfig,
    /// Most guessed canvases of a forward beside the real one.
    pub branches: u32,
    /// Most guesses that a forward checks, each at a row beside those of the canvas.
    pub checked: u32,
}

impl Footprint<'_> {
    /// Pages of one table over prompt, budget, and the rows that check guesses.
    pub fn table(&self) -> u32 {
        (self.prompt + self.budget + self.checked.min(self.budget)).div_ceil(self.page_size)
    }

    /// Pages of a single table for all lanes and for the guessed canvases of a forward, each of
    /// which has a version of its own of the `slots` that its rows write.
    pub fn shared_table(&self, slots: u32) -> u32 {
        let written = slots + self.readers();
        self.table() + self.branches * (written.div_ceil(self.page_size) + 1)
    }

    /// Pages of one table for a schedule that verifies drafts: the masks behind the drafts lie behind
    /// the canvas at its end.
    pub fn drafted_table(&self) -> u32 {
        let slots = self.prompt + self.budget + self.schedule.drafts();
        slots.div_ceil(self.page_size)
    }

    /// Rows before a lane's first that a forward computes for their predictions: 1 if predictions
    /// are read at the row before, else 0.
    pub fn readers(&self) -> u32 {
        u32::from(self.logit_shift == LogitShift::One)
    }
}

decode::describe!(CacheInfo, "cache");
