//! The facts of one step, from which every metric is computed at the edge.

use std::time::Duration;

use crate::event::{FinishReason, SequenceStats};

/// Counts per forward kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByKind {
    /// First forwards.
    pub prefill: u64,
    /// Lane forwards.
    pub decode: u64,
    /// Refreshes.
    pub refresh: u64,
}

/// Counts per lane role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByRole {
    /// Generate lanes.
    pub generate: u32,
    /// Refine lanes.
    pub refine: u32,
}

impl ByRole {
    /// The count of `role`.
    pub fn of(&mut self, role: decode::Role) -> &mut u32 {
        match role {
            decode::Role::Generate => &mut self.generate,
            decode::Role::Refine => &mut self.refine,
        }
    }
}

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
    /// The forward pass, as far as it is launched and awaited.
    #[must_use]
    pub fn execute(&self) -> Duration {
        self.begin + self.wait
    }
}

/// What one step did. Reused between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Whether a forward pass ran (a pass that only cancels or finishes sequences runs none).
    pub executed: bool,
    /// The forward pass failed, and with it its sequences.
    pub failed: bool,
    /// Sequences in the forward pass.
    pub sequences: u32,
    /// Prompt tokens of the sequences that started, if prefixes are cached.
    pub prompt_tokens: u64,
    /// Prompt tokens among them whose K/V were cached.
    pub cached_tokens: u64,
    /// Sequence forwards by kind.
    pub forwards: ByKind,
    /// Forwards over parts of prompts, which are not among `forwards`.
    pub prefill_chunks: u64,
    /// Rows by kind; those of chunks count as prefill.
    pub positions: ByKind,
    /// Commits of lane masks.
    pub masked_commits: u32,
    /// Commits in lookahead windows.
    pub draft_commits: u32,
    /// Rewritten tokens.
    pub edit_commits: u32,
    /// Tokens of the draft model that were given to sequences.
    pub drafted_tokens: u64,
    /// Tokens of the draft model that the model confirmed.
    pub verified_tokens: u64,
    /// Lanes born.
    pub lanes_started: ByRole,
    /// Lanes forked (always generate lanes).
    pub lanes_forked: u32,
    /// Lanes that finished or were dropped with their sequence.
    pub lanes_finished: ByRole,
    /// For every refine lane that finished: its last step minus its sibling's first.
    pub fork_leads: Vec<i32>,
    /// For every commit: time since the position was first scored.
    pub commit_latency: Vec<Duration>,
    /// For every emitted token: time since it was committed.
    pub emit_lag: Vec<Duration>,
    /// Sequences that finished in this step.
    pub finished: Vec<FinishedSequence>,
    /// Sequences cancelled before this step.
    pub cancelled: u32,
    /// State after the step.
    pub gauges: Gauges,
    /// Wall time per phase.
    pub times: PhaseTimes,
}

/// A sequence that finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedSequence {
    /// Why.
    pub reason: FinishReason,
    /// Its cost.
    pub stats: SequenceStats,
    /// Drafts among the emitted tokens.
    pub accepted_drafts: u32,
}

/// The engine's state after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Sequences with a place in the batch.
    pub running: u32,
    /// Sequences accepted but without a place.
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
        let mut lists = std::mem::take(self);
        lists.fork_leads.clear();
        lists.commit_latency.clear();
        lists.emit_lag.clear();
        lists.finished.clear();
        *self = Self {
            fork_leads: lists.fork_leads,
            commit_latency: lists.commit_latency,
            emit_lag: lists.emit_lag,
            finished: lists.finished,
            ..Self::default()
        };
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
