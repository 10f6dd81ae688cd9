//! Metrics of the engine's steps.

use engine::{ByKind, ByRole, PhaseTimes, StepReport};
use prometheus::{Gauge, Histogram, IntCounter};

use super::register::{Distribution, Register};
use super::seconds;

const KINDS: [&str; 3] = ["prefill", "decode", "refresh"];
const PHASES: [&str; 6] = ["plan", "begin", "wait", "execute", "apply", "emit"];
const ROLES: [&str; 2] = ["generate", "refine"];
const COUNTS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];
const ROWS: &[f64] = &[
    1.0, 4.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const STEPS: &[f64] = &[-1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
const SHORT: &[f64] = &[
    0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0,
];

/// The metrics.
#[derive(Debug)]
pub struct Steps {
    steps: IntCounter,
    failures: IntCounter,
    forwards: [IntCounter; 3],
    chunks: IntCounter,
    positions: [IntCounter; 3],
    committed: [IntCounter; 3],
    drafts: [IntCounter; 2],
    draft_model: DraftModel,
    lanes_active: [Gauge; 2],
    lanes_started: [IntCounter; 2],
    lanes_forked: [IntCounter; 2],
    lanes_finished: [IntCounter; 2],
    prefix: Prefix,
    rows: Histogram,
    batch: Histogram,
    durations: [Histogram; 6],
    host: Gauge,
    fork_lead: Histogram,
    commit_latency: Histogram,
    emit_lag: Histogram,
}

/// The prefix cache, in tokens.
#[derive(Debug)]
struct Prefix {
    queries: IntCounter,
    hits: IntCounter,
}

impl Prefix {
    fn new(register: &Register<'_>) -> Self {
        Self {
            queries: register.counter(
                "prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache",
            ),
            hits: register.counter(
                "prefix_cache_hits_total",
                "Prompt tokens with K/V in the prefix cache",
            ),
        }
    }
}

/// The drafts of a draft model, in tokens.
#[derive(Debug)]
struct DraftModel {
    drafted: IntCounter,
    accepted: IntCounter,
}

impl DraftModel {
    fn new(register: &Register<'_>) -> Self {
        Self {
            drafted: register.counter(
                "draft_model_tokens_total",
                "Tokens of the draft model, or copied from the text, that the model has verified",
            ),
            accepted: register.counter(
                "draft_model_accepted_tokens_total",
                "Tokens of the draft model, or copied from the text, that the model has confirmed",
            ),
        }
    }
}

/// The histogram of the phases' durations.
const DURATION: Distribution<'_> = Distribution {
    name: "step_duration_seconds",
    help: "Wall time of the phases of a step",
    bounds: SHORT,
};

const HOST_SHARE: &str =
    "Share of the last step in which no forward pass runs: plan, begin and apply";

/// Forward passes that are not among the others, because they predict nothing.
fn chunks(register: &Register<'_>) -> IntCounter {
    register.counter(
        "prefill_chunks_total",
        "Forward passes over parts of long prompts, counted per sequence",
    )
}

impl Steps {
    /// Registers them.
    pub fn new(register: &Register<'_>) -> Self {
        Self {
            steps: register.counter("engine_steps_total", "Forward passes of the device"),
            failures: register.counter("step_failures_total", "Forward passes that failed"),
            forwards: register.counters(
                ("forwards_total", "Forward passes, counted per sequence"),
                "kind",
                KINDS,
            ),
            chunks: chunks(register),
            positions: register.counters(
                ("positions_total", "Query positions computed"),
                "kind",
                KINDS,
            ),
            committed: register.counters(
                (
                    "committed_tokens_total",
                    "Committed tokens, including those after the end of the text",
                ),
                "kind",
                ["masked", "draft", "edit"],
            ),
            drafts: register.counters(
                (
                    "drafts_total",
                    "Lookahead tokens of finished sequences, accepted or rejected",
                ),
                "result",
                ["accepted", "rejected"],
            ),
            draft_model: DraftModel::new(register),
            lanes_active: register.gauges(("lanes_active", "Active lanes"), "role", ROLES),
            lanes_started: register.counters(
                ("lanes_started_total", "Lanes started"),
                "role",
                ROLES,
            ),
            lanes_forked: register.counters(("lanes_forked_total", "Lanes forked"), "role", ROLES),
            lanes_finished: register.counters(
                (
                    "lanes_finished_total",
                    "Lanes finished or dropped with their sequence",
                ),
                "role",
                ROLES,
            ),
            prefix: Prefix::new(register),
            rows: register.histogram("positions_per_forward", "Query positions per step", ROWS),
            batch: register.histogram("batch_size", "Sequences per step", COUNTS),
            durations: register.histograms(DURATION, "phase", PHASES),
            host: register.gauge("step_host_share", HOST_SHARE),
            fork_lead: register.histogram(
                "fork_lead_steps",
                "A refine lane's last step minus its sibling's first",
                STEPS,
            ),
            commit_latency: register.histogram(
                "commit_latency_seconds",
                "From the first candidate of a position to its commit",
                SHORT,
            ),
            emit_lag: register.histogram(
                "emit_lag_seconds",
                "From the commit of a token until the frontier passes it",
                SHORT,
            ),
        }
    }

    /// Share of the prompt tokens that the prefix cache had, in `0.0..=1.0`.
    pub fn prefix_hit_rate(&self) -> f64 {
        let Prefix { queries, hits } = &self.prefix;
        hits.get() as f64 / queries.get().max(1) as f64
    }

    /// Counts one step.
    pub fn observe(&self, report: &StepReport) {
        if report.executed {
            self.steps.inc();
            self.batch.observe(report.sequences.into());
            let rows = report.positions;
            self.rows
                .observe((rows.prefill + rows.decode + rows.refresh) as f64);
            let times = report.times;
            let PhaseTimes {
                plan,
                begin,
                wait,
                apply,
                emit,
            } = times;
            let phases = [plan, begin, wait, times.execute(), apply, emit];
            for (histogram, time) in self.durations.iter().zip(phases) {
                histogram.observe(seconds(time));
            }
            let host = seconds(plan + begin + apply);
            self.host.set(share(host, seconds(wait)));
        }
        self.prefix.queries.inc_by(report.prompt_tokens);
        self.prefix.hits.inc_by(report.cached_tokens);
        self.draft_model.drafted.inc_by(report.drafted_tokens);
        self.draft_model.accepted.inc_by(report.verified_tokens);
        self.failures.inc_by(report.failed.into());
        add(&self.forwards, by_kind(report.forwards));
        self.chunks.inc_by(report.prefill_chunks);
        add(&self.positions, by_kind(report.positions));
        let commits = [
            report.masked_commits,
            report.draft_commits,
            report.edit_commits,
        ];
        add(&self.committed, commits.map(u64::from));
        for finished in &report.finished {
            let accepted = u64::from(finished.accepted_drafts);
            let rejected = u64::from(finished.stats.drafts).saturating_sub(accepted);
            add(&self.drafts, [accepted, rejected]);
        }
        self.lanes(report);
        report
            .fork_leads
            .iter()
            .for_each(|lead| self.fork_lead.observe((*lead).into()));
        for latency in &report.commit_latency {
            self.commit_latency.observe(seconds(*latency));
        }
        report
            .emit_lag
            .iter()
            .for_each(|lag| self.emit_lag.observe(seconds(*lag)));
    }

    fn lanes(&self, report: &StepReport) {
        add(&self.lanes_started, by_role(report.lanes_started));
        add(&self.lanes_forked, [u64::from(report.lanes_forked), 0]);
        add(&self.lanes_finished, by_role(report.lanes_finished));
        let active = by_role(report.gauges.lanes);
        for (gauge, count) in self.lanes_active.iter().zip(active) {
            gauge.set(count as f64);
        }
    }
}

fn add<const N: usize>(counters: &[IntCounter; N], counts: [u64; N]) {
    for (counter, count) in counters.iter().zip(counts) {
        counter.inc_by(count);
    }
}

/// The share of `part` in `part + rest`; 0 of nothing.
fn share(part: f64, rest: f64) -> f64 {
    let all = part + rest;
    if all > 0.0 { part / all } else { 0.0 }
}

fn by_kind(counts: ByKind) -> [u64; 3] {
    [counts.prefill, counts.decode, counts.refresh]
}

fn by_role(counts: ByRole) -> [u64; 2] {
    [counts.generate.into(), counts.refine.into()]
}
