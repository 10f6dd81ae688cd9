//! Metrics of the engine's steps.

use engine::{ByKind, ByRole, CommitCounts, PhaseTimes, StepReport};
use prometheus::{Gauge, Histogram, IntCounter};

use super::register::metrics;
use super::seconds;

const KINDS: [&str; 3] = ["prefill", "decode", "refresh"];
const PHASES: [&str; 6] = ["plan", "begin", "wait", "execute", "apply", "emit"];
const ROLES: [&str; 2] = ["generate", "refine"];
const SEQUENCE_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
const ROW_BUCKETS: &[f64] =
    &[1.0, 4.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const STEP_BUCKETS: &[f64] = &[-1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
const SECONDS_BUCKETS: &[f64] =
    &[0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

metrics! {
    struct Forwards(register) {
        steps: IntCounter = register.counter("engine_steps_total", "Forward passes of the device"),
        failures: IntCounter = register.counter("step_failures_total", "Forward passes that failed"),
        forwards: [IntCounter; 3] = register.counters("forwards_total",
            "Forward passes, counted per sequence", "kind", KINDS),
        /// Not among `forwards`, because they predict nothing.
        chunks: IntCounter = register.counter("prefill_chunks_total",
            "Forward passes over parts of long prompts, counted per sequence"),
        positions: [IntCounter; 3] = register.counters("positions_total",
            "Query positions computed", "kind", KINDS),
        rows: Histogram = register.histogram("positions_per_forward", "Query positions per step", ROW_BUCKETS),
        batch: Histogram = register.histogram("batch_size", "Sequences per step", SEQUENCE_BUCKETS),
        durations: [Histogram; 6] = {
            let about = "Wall time of the phases of a step";
            let all = register.histogram_family("step_duration_seconds", about, SECONDS_BUCKETS, "phase");
            PHASES.map(|phase| all.with_label_values(&[phase]))
        },
        host: Gauge = register.gauge("step_host_share",
            "Share of the last step in which no forward pass runs: plan, begin and apply"),
    }
}

metrics! {
    struct Tokens(register) {
        committed: [IntCounter; 3] = register.counters("committed_tokens_total",
            "Committed tokens, including those after the end of the text", "kind",
            ["masked", "draft", "edit"]),
        commit_latency: Histogram = register.histogram("commit_latency_seconds",
            "From the first candidate of a position to its commit", SECONDS_BUCKETS),
        emit_lag: Histogram = register.histogram("emit_lag_seconds",
            "From the commit of a token until the frontier passes it", SECONDS_BUCKETS),
        drafts: [IntCounter; 2] = register.counters("drafts_total",
            "Lookahead tokens of finished sequences, accepted or rejected", "result",
            ["accepted", "rejected"]),
        draft_model_verified: IntCounter = register.counter("draft_model_tokens_total",
            "Tokens of the draft model, or copied from the text, that the model has verified"),
        draft_model_accepted: IntCounter = register.counter("draft_model_accepted_tokens_total",
            "Tokens of the draft model, or copied from the text, that the model has confirmed"),
        prefix_queries: IntCounter = register.counter("prefix_cache_queries_total",
            "Prompt tokens looked up in the prefix cache"),
        prefix_hits: IntCounter = register.counter("prefix_cache_hits_total",
            "Prompt tokens with K/V in the prefix cache"),
    }
}

metrics! {
    struct Lanes(register) {
        active: [Gauge; 2] = register.gauges("lanes_active", "Active lanes", "role", ROLES),
        started: [IntCounter; 2] = register.counters("lanes_started_total", "Lanes started", "role", ROLES),
        forked: [IntCounter; 2] = register.counters("lanes_forked_total", "Lanes forked", "role", ROLES),
        finished: [IntCounter; 2] = register.counters("lanes_finished_total",
            "Lanes finished or dropped with their sequence", "role", ROLES),
        fork_lead: Histogram = register.histogram("fork_lead_steps",
            "Steps between a sibling's first and a refine lane's last", STEP_BUCKETS),
    }
}

metrics! {
    /// The metrics of the engine's steps.
    pub struct StepMetrics(register) {
        forwards: Forwards = Forwards::new(register),
        tokens: Tokens = Tokens::new(register),
        lanes: Lanes = Lanes::new(register),
    }
}

impl StepMetrics {
    /// Share of the prompt tokens that the prefix cache had, in `0.0..=1.0`.
    pub fn prefix_hit_rate(&self) -> f64 {
        let (hits, queries) = (&self.tokens.prefix_hits, &self.tokens.prefix_queries);
        hits.get() as f64 / queries.get().max(1) as f64
    }

    /// Counts one step.
    pub fn observe(&self, report: &StepReport) {
        let forwards = &self.forwards;
        if report.executed {
            forwards.executed(report);
        }
        forwards.failures.inc_by(report.failed.into());
        add(&forwards.forwards, by_kind(report.work.forwards));
        forwards.chunks.inc_by(report.work.chunks.into());
        add(&forwards.positions, by_kind(report.work.positions));
        self.tokens.observe(report);
        self.lanes.observe(report);
    }
}

impl Forwards {
    /// Records a step with a forward pass.
    fn executed(&self, report: &StepReport) {
        self.steps.inc();
        self.batch.observe(report.work.sequences.into());
        let rows = report.work.positions;
        let rows = rows.prefill + rows.decode + rows.refresh;
        self.rows.observe(rows as f64);
        let times = report.times;
        let PhaseTimes { plan, begin, wait, apply, emit } = times;
        let phases = [plan, begin, wait, times.execute(), apply, emit];
        for (histogram, time) in self.durations.iter().zip(phases) {
            histogram.observe(seconds(time));
        }
        let host = seconds(plan + begin + apply);
        self.host.set(fraction(host, seconds(wait)));
    }
}

impl Tokens {
    fn observe(&self, report: &StepReport) {
        self.prefix_queries.inc_by(report.prompts.tokens);
        self.prefix_hits.inc_by(report.prompts.cached);
        self.draft_model_verified.inc_by(report.drafts.drafted);
        self.draft_model_accepted.inc_by(report.drafts.verified);
        let CommitCounts { masked, drafts, edits } = report.commits;
        let commits = [masked, drafts, edits];
        add(&self.committed, commits.map(u64::from));
        for finished in &report.finished {
            let accepted = u64::from(finished.accepted_drafts);
            let rejected = u64::from(finished.stats.commits.drafts).saturating_sub(accepted);
            add(&self.drafts, [accepted, rejected]);
        }
        for latency in &report.delays.commit {
            self.commit_latency.observe(seconds(*latency));
        }
        for lag in &report.delays.emit {
            self.emit_lag.observe(seconds(*lag));
        }
    }
}

impl Lanes {
    fn observe(&self, report: &StepReport) {
        add(&self.started, by_role(report.lanes.started));
        add(&self.forked, [u64::from(report.lanes.forked), 0]);
        add(&self.finished, by_role(report.lanes.finished));
        let active = by_role(report.gauges.lanes);
        for (gauge, count) in self.active.iter().zip(active) {
            gauge.set(count as f64);
        }
        for lead in &report.lanes.fork_leads {
            self.fork_lead.observe((*lead).into());
        }
    }
}

fn add<const N: usize>(counters: &[IntCounter; N], counts: [u64; N]) {
    for (counter, count) in counters.iter().zip(counts) {
        counter.inc_by(count);
    }
}

/// `part / (part + rest)`; 0 if both are 0.
fn fraction(part: f64, rest: f64) -> f64 {
    let all = part + rest;
    if all > 0.0 { part / all } else { 0.0 }
}

fn by_kind<T: Into<u64>>(counts: ByKind<T>) -> [u64; 3] {
    [counts.prefill, counts.decode, counts.refresh].map(Into::into)
}

fn by_role(counts: ByRole) -> [u64; 2] {
    [counts.generate.into(), counts.refine.into()]
}
