//! How a cache policy describes itself.

use decode::{AttentionKind, Company, Configured, Fault, ScheduleConfig, SettingInfo, Settings};
use step::{Attention, Readout};

use super::CachePolicy;

/// A cache policy with a value for each of its settings.
pub type CacheConfig = Configured<CacheInfo>;

/// Everything the server, the engine and the documents know about a cache policy.
#[derive(Clone, Copy, Debug)]
pub struct CacheInfo {
    /// `cache` of a request.
    pub name: &'static str,
    /// Which K/V a forward reads, in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// The settings it reads.
    pub settings: &'static [SettingInfo],
    /// Schedules it goes with besides those that name it in their own descriptions.
    pub schedules: Company,
    /// The attention that the weights may have.
    pub attention: &'static [AttentionKind],
    /// Whether the settings go with each other and with the schedule.
    pub check: fn(&Settings, &ScheduleConfig) -> Result<(), Fault>,
    /// Most KV pages that a sequence can hold at once.
    pub pages: fn(&Footprint<'_>) -> u32,
    /// The policy with these settings.
    pub build: fn(&Settings, &CacheInput<'_>) -> Box<dyn CachePolicy>,
}

/// What a policy is built from besides its settings.
#[derive(Clone, Copy, Debug)]
pub struct CacheInput<'a> {
    /// What rows may see.
    pub attention: Attention,
    /// The schedule of the same sequence.
    pub schedule: &'a ScheduleConfig,
    /// Most rows of a forward over a part of a prompt; 0 = a prompt is not split.
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
    /// What rows may see.
    pub attention: Attention,
    /// Where predictions are read.
    pub readout: Readout,
    /// The schedule.
    pub schedule: &'a ScheduleConfig,
    /// Guessed canvases of a forward beside the real one, at most.
    pub branches: u32,
    /// Guesses that a forward checks, at most: as many rows beside those of the canvas.
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
        u32::from(self.readout == Readout::Previous)
    }
}

decode::describe!(CacheInfo, "cache");
