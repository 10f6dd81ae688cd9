//! The facts of one step, from which every metric is computed at the edge.

use std::time::Duration;

use crate::counts::{ByKind, ByRole, CommitCounts};
use crate::event::{FinishReason, SequenceStats};

/// Wall time of a step's phases; all zero without a driver that measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Choosing rows and packing the batch.
    pub plan: Duration,
    /// Launching the forward pass; zero for executors that compute while they are waited for.
    pub begin: Duration,
    /// Waiting for the forward pass, after the events of the step before were handed out.
    pub wait: Duration,
    /// Commits, lanes, pages.
    pub apply: Duration,
    /// Handing out the events of the step before.
    pub emit: Duration,
}

impl PhaseTimes {
    /// The time of the forward pass, from its launch to its end.
    #[must_use]
    pub fn execute(&self) -> Duration {
        self.begin + self.wait
    }
}

/// The facts of one step. It is reused between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// True if a forward pass ran (a pass that only cancels or finishes sequences runs none).
    pub executed: bool,
    /// The forward pass failed, and with it its sequences.
    pub failed: bool,
    /// The forwards of the step.
    pub work: Work,
    /// Prompts of the sequences that started, if prefixes are cached.
    pub prompts: PromptCounts,
    /// Commits.
    pub commits: CommitCounts,
    /// Drafts of a draft model, or copied from the text.
    pub drafts: DraftCounts,
    /// Lanes.
    pub lanes: LaneCounts,
    /// Waiting times of tokens.
    pub delays: Delays,
    /// Sequences that finished in this step.
    pub finished: Vec<FinishedSequence>,
    /// Sequences cancelled before this step.
    pub cancelled: u32,
    /// State after the step.
    pub gauges: Gauges,
    /// Wall time per phase.
    pub times: PhaseTimes,
}

/// The forwards of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Sequences in the forward pass.
    pub sequences: u32,
    /// Sequence forwards by kind.
    pub forwards: ByKind<u32>,
    /// Forwards over parts of prompts, which are not among `forwards`.
    pub chunks: u32,
    /// Rows by kind; the rows of chunks count as prefill.
    pub positions: ByKind<u64>,
}

/// Tokens of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptCounts {
    /// All tokens.
    pub tokens: u64,
    /// Tokens among them whose K/V were cached.
    pub cached: u64,
}

/// Tokens of a draft model, or copies of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Tokens that were given to sequences.
    pub drafted: u64,
    /// Tokens among them that the model confirmed.
    pub verified: u64,
}

/// Lanes of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Lanes born.
    pub started: ByRole,
    /// Lanes forked (always generate lanes).
    pub forked: u32,
    /// Lanes that finished or were dropped with their sequence.
    pub finished: ByRole,
    /// For every refine lane that finished: its last step minus its sibling's first.
    pub fork_leads: Vec<i32>,
}

/// Waiting times of the tokens of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// For every commit: time since the position was first scored.
    pub commit: Vec<Duration>,
    /// For every emitted token: time since it was committed.
    pub emit: Vec<Duration>,
}

/// A sequence that finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedSequence {
    /// The reason.
    pub reason: FinishReason,
    /// Its cost.
    pub stats: SequenceStats,
    /// Drafts among the emitted tokens.
    pub accepted_drafts: u32,
}

/// The engine's state after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait to start.
    pub waiting: u32,
    /// Active lanes.
    pub lanes: ByRole,
    /// KV pages that sequences hold.
    pub pages_used: u32,
    /// KV pages that the prefix cache alone holds.
    pub pages_idle: u32,
    /// KV pages in all.
    pub pages_total: u32,
}

impl StepReport {
    /// Empties the report, keeping its allocations.
    pub fn clear(&mut self) {
        let mut old = std::mem::take(self);
        old.lanes.fork_leads.clear();
        old.delays.commit.clear();
        old.delays.emit.clear();
        old.finished.clear();
        self.lanes.fork_leads = old.lanes.fork_leads;
        self.delays = old.delays;
        self.finished = old.finished;
    }
}

/// Receives the facts of every step on the engine thread; must not block.
pub trait Observer: Send {
    /// One step is over.
    fn on_step(&mut self, report: &StepReport);
}

/// Ignores everything.
impl Observer for () {
    fn on_step(&mut self, _report: &StepReport) {}
}
