//! Metrics of requests, measured by the server's clock.

use std::time::Duration;

use engine::FinishReason;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::register::metrics;
use super::seconds;
use crate::error::ErrorCode;

const LATENCY_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
const GAP_BUCKETS: &[f64] =
    &[0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const TOKEN_BUCKETS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0,
];
const PER_FORWARD_BUCKETS: &[f64] =
    &[0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 32.0];

/// The kinds of tokens.
const PROMPT: &str = "prompt";
const GENERATED: &str = "generation";

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered completely.
    Ok,
    /// The request was invalid.
    Invalid,
    /// Not accepted: overload, loading, shutdown.
    Rejected,
    /// The client disconnected.
    Cancelled,
    /// The server failed.
    Failed,
}

impl Outcome {
    const NAMES: [&str; 5] = ["ok", "invalid", "rejected", "cancelled", "failed"];

    /// The outcome of a request that ended with an error.
    pub fn new(code: ErrorCode) -> Self {
        match code {
            ErrorCode::InternalError | ErrorCode::EngineStopped | ErrorCode::EngineStalled => {
                Self::Failed
            }
            ErrorCode::Overloaded | ErrorCode::Loading | ErrorCode::ShuttingDown => Self::Rejected,
            _ => Self::Invalid,
        }
    }

    /// The label's value.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The figures of a completely answered request.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// Its finish reason; `length` if any choice has it.
    pub reason: FinishReason,
    /// Its usage.
    pub prompt_tokens: u64,
    /// Its usage.
    pub completion_tokens: u64,
    /// Delivered tokens of its longest choice.
    pub longest: u64,
    /// NFE, over its sequences.
    pub forwards: u64,
    /// From arrival until its first sequence ran.
    pub queue: Duration,
    /// From arrival to the first token; to the end if there is none.
    pub first_token: Duration,
    /// From the first to the last token.
    pub decode: Duration,
    /// From arrival to the end.
    pub total: Duration,
}

impl Success {
    /// From when its first sequence ran until the first token.
    pub fn prefill(&self) -> Duration {
        self.first_token.saturating_sub(self.queue)
    }

    /// Time per token after the first.
    pub fn per_token(&self) -> Duration {
        let rest = self.completion_tokens.saturating_sub(1).max(1);
        self.decode.div_f64(rest as f64)
    }
}

metrics! {
    /// By the path of the endpoint.
    struct ByEndpoint(register) {
        /// By outcome too.
        requests: IntCounterVec = register.counter_family("requests_total",
            "Requests for a generation or a count of tokens", ["endpoint", "outcome"]),
        latency: HistogramVec = register.histogram_family("endpoint_latency_seconds",
            "From arrival to the end of completely answered requests, by endpoint", LATENCY_BUCKETS, "endpoint"),
        /// By kind too: of the prompt, or generated.
        tokens: IntCounterVec = register.counter_family("endpoint_tokens_total",
            "Tokens of generations that ran, by endpoint, counted at their end", ["endpoint", "kind"]),
    }
}

metrics! {
    struct Times(register) {
        first_token: Histogram = register.histogram("time_to_first_token_seconds",
            "From arrival to the first token", LATENCY_BUCKETS),
        total: Histogram = register.histogram("e2e_request_latency_seconds",
            "From arrival to the end", LATENCY_BUCKETS),
        queue: Histogram = register.histogram("request_queue_time_seconds",
            "From arrival until the first sequence runs", LATENCY_BUCKETS),
        prefill: Histogram = register.histogram("request_prefill_time_seconds",
            "From the start of the first sequence until the first token", LATENCY_BUCKETS),
        decode: Histogram = register.histogram("request_decode_time_seconds",
            "From the first token to the last", LATENCY_BUCKETS),
        per_token: Histogram = register.histogram("request_time_per_output_token_seconds",
            "Decode time per token after the first", GAP_BUCKETS),
        chunk_gap: Histogram = register.histogram("inter_chunk_latency_seconds",
            "Time between two frontier moves of a choice", GAP_BUCKETS),
    }
}

metrics! {
    struct Sizes(register) {
        prompt: Histogram = register.histogram("request_prompt_tokens",
            "Prompt tokens of a request", TOKEN_BUCKETS),
        generation: Histogram = register.histogram("request_generation_tokens",
            "Tokens delivered by a request", TOKEN_BUCKETS),
        longest: Histogram = register.histogram("request_max_num_generation_tokens",
            "Tokens delivered by the longest choice of a request", TOKEN_BUCKETS),
        forwards: Histogram = register.histogram("request_forwards",
            "Forward passes of a request (NFE)", TOKEN_BUCKETS),
        tokens_per_forward: Histogram = register.histogram("tokens_per_forward",
            "Tokens delivered per forward pass of a request (TPF)", PER_FORWARD_BUCKETS),
    }
}

metrics! {
    /// The metrics of requests.
    pub struct RequestMetrics(register) {
        by_endpoint: ByEndpoint = ByEndpoint::new(register),
        success: [IntCounter; 2] = register.counters("request_success_total",
            "Completely answered requests", "finished_reason", ["stop", "length"]),
        prompt_tokens: IntCounter = register.counter("prompt_tokens_total",
            "Prompt tokens of requests that ran, counted at their end"),
        generation_tokens: IntCounter = register.counter("generation_tokens_total",
            "Tokens delivered by requests, counted at their end"),
        times: Times = Times::new(register),
        sizes: Sizes = Sizes::new(register),
    }
}

impl RequestMetrics {
    /// Creates the series of the endpoint at `path`.
    pub fn add_path(&self, path: &str) {
        let by_endpoint = &self.by_endpoint;
        for outcome in Outcome::NAMES {
            by_endpoint.requests.with_label_values(&[path, outcome]);
        }
        by_endpoint.latency.with_label_values(&[path]);
        for kind in [PROMPT, GENERATED] {
            by_endpoint.tokens.with_label_values(&[path, kind]);
        }
    }

    /// Records the time of a completely answered request to the endpoint at `path`.
    pub fn answered(&self, path: &str, latency: Duration) {
        let histogram = self.by_endpoint.latency.with_label_values(&[path]);
        histogram.observe(seconds(latency));
    }

    /// Counts a request to the endpoint at `path` that has ended.
    pub fn ended(&self, path: &str, outcome: Outcome) {
        let labels = [path, outcome.name()];
        self.by_endpoint.requests.with_label_values(&labels).inc();
    }

    /// Counts the tokens of a request to the endpoint at `path` that ran and has ended.
    pub fn count_tokens(&self, path: &str, prompt: u64, generated: u64) {
        for (kind, count) in [(PROMPT, prompt), (GENERATED, generated)] {
            let tokens = self.by_endpoint.tokens.with_label_values(&[path, kind]);
            tokens.inc_by(count);
        }
        self.prompt_tokens.inc_by(prompt);
        self.generation_tokens.inc_by(generated);
    }

    /// Records the figures of a completely answered generation of the endpoint at `path`.
    pub fn succeeded(&self, path: &str, facts: &Success) {
        self.answered(path, facts.total);
        let (prompt, generated) = (facts.prompt_tokens, facts.completion_tokens);
        self.count_tokens(path, prompt, generated);
        self.success[facts.reason as usize].inc();
        let times = &self.times;
        for (histogram, time) in [
            (&times.first_token, facts.first_token),
            (&times.total, facts.total),
            (&times.queue, facts.queue),
            (&times.prefill, facts.prefill()),
            (&times.decode, facts.decode),
            (&times.per_token, facts.per_token()),
        ] {
            histogram.observe(seconds(time));
        }
        let sizes = &self.sizes;
        for (histogram, size) in [
            (&sizes.prompt, prompt as f64),
            (&sizes.generation, generated as f64),
            (&sizes.longest, facts.longest as f64),
            (&sizes.forwards, facts.forwards as f64),
            (&sizes.tokens_per_forward, generated as f64 / facts.forwards.max(1) as f64),
        ] {
            histogram.observe(size);
        }
    }

    /// Records the time between two frontier moves of a choice.
    pub fn chunk_gap(&self, gap: Duration) {
        self.times.chunk_gap.observe(seconds(gap));
    }
}
