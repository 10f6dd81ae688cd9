//! Metrics of requests, measured by the server's clock.

use std::time::Duration;

use engine::FinishReason;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::register::{Distribution, Register};
use super::seconds;
use crate::error::ErrorCode;

const LATENCY: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
const GAPS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0,
];
const PER_FORWARD: &[f64] = &[
    0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 32.0,
];

/// The kinds of tokens.
const PROMPT: &str = "prompt";
const GENERATED: &str = "generation";

/// How a request ended.
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
    pub fn of(code: ErrorCode) -> Self {
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

/// The metrics.
#[derive(Debug)]
pub struct Edge {
    /// By path and outcome.
    requests: IntCounterVec,
    /// By path.
    latency: HistogramVec,
    /// By path, and by whether they are of the prompt or generated.
    tokens: IntCounterVec,
    success: [IntCounter; 2],
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    first_token: Histogram,
    total: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    per_token: Histogram,
    chunk_gap: Histogram,
    request_prompt: Histogram,
    request_generation: Histogram,
    longest: Histogram,
    request_forwards: Histogram,
    tokens_per_forward: Histogram,
}

impl Edge {
    /// Registers them.
    pub fn new(register: &Register<'_>) -> Self {
        let time = |name, help| register.histogram(name, help, LATENCY);
        let size = |name, help| register.histogram(name, help, TOKENS);
        let (requests, latency, tokens) = by_endpoint(register);
        Self {
            requests,
            latency,
            tokens,
            success: register.counters(
                ("request_success_total", "Completely answered requests"),
                "finished_reason",
                ["stop", "length"],
            ),
            prompt_tokens: register.counter(
                "prompt_tokens_total",
                "Prompt tokens of completely answered requests",
            ),
            generation_tokens: register.counter(
                "generation_tokens_total",
                "Tokens delivered by completely answered requests",
            ),
            first_token: time(
                "time_to_first_token_seconds",
                "From arrival to the first token",
            ),
            total: time("e2e_request_latency_seconds", "From arrival to the end"),
            queue: time(
                "request_queue_time_seconds",
                "From arrival until the first sequence runs",
            ),
            prefill: time(
                "request_prefill_time_seconds",
                "From when the first sequence runs until the first token",
            ),
            decode: time(
                "request_decode_time_seconds",
                "From the first token to the last",
            ),
            per_token: register.histogram(
                "request_time_per_output_token_seconds",
                "Decode time per token after the first",
                GAPS,
            ),
            chunk_gap: register.histogram(
                "inter_chunk_latency_seconds",
                "Time between two frontier moves of a choice",
                GAPS,
            ),
            request_prompt: size("request_prompt_tokens", "Prompt tokens of a request"),
            request_generation: size("request_generation_tokens", "Tokens delivered by a request"),
            longest: size(
                "request_max_num_generation_tokens",
                "Tokens delivered by the longest choice of a request",
            ),
            request_forwards: size("request_forwards", "Forward passes of a request (NFE)"),
            tokens_per_forward: register.histogram(
                "tokens_per_forward",
                "Tokens delivered per forward pass of a request (TPF)",
                PER_FORWARD,
            ),
        }
    }

    /// Creates the series of the endpoint at `path`.
    pub fn add_path(&self, path: &str) {
        for outcome in Outcome::NAMES {
            self.requests.with_label_values(&[path, outcome]);
        }
        self.latency.with_label_values(&[path]);
        for kind in [PROMPT, GENERATED] {
            self.tokens.with_label_values(&[path, kind]);
        }
    }

    /// Records the time of a completely answered request to the endpoint at `path`.
    pub fn answered(&self, path: &str, latency: Duration) {
        let histogram = self.latency.with_label_values(&[path]);
        histogram.observe(seconds(latency));
    }

    /// Counts a request to the endpoint at `path` that has ended.
    pub fn ended(&self, path: &str, outcome: Outcome) {
        let counter = self.requests.with_label_values(&[path, outcome.name()]);
        counter.inc();
    }

    /// Records the figures of a completely answered generation of the endpoint at `path`.
    pub fn succeeded(&self, path: &str, facts: &Success) {
        self.answered(path, facts.total);
        let tokens = [
            (PROMPT, facts.prompt_tokens),
            (GENERATED, facts.completion_tokens),
        ];
        for (kind, count) in tokens {
            self.tokens.with_label_values(&[path, kind]).inc_by(count);
        }
        let reason = match facts.reason {
            FinishReason::Stop => 0,
            FinishReason::Length => 1,
        };
        self.success[reason].inc();
        self.prompt_tokens.inc_by(facts.prompt_tokens);
        self.generation_tokens.inc_by(facts.completion_tokens);
        self.first_token.observe(seconds(facts.first_token));
        self.total.observe(seconds(facts.total));
        self.queue.observe(seconds(facts.queue));
        self.prefill.observe(seconds(facts.prefill()));
        self.decode.observe(seconds(facts.decode));
        self.per_token.observe(seconds(facts.per_token()));
        self.request_prompt.observe(facts.prompt_tokens as f64);
        self.request_generation
            .observe(facts.completion_tokens as f64);
        self.longest.observe(facts.longest as f64);
        self.request_forwards.observe(facts.forwards as f64);
        let per_forward = facts.completion_tokens as f64 / facts.forwards.max(1) as f64;
        self.tokens_per_forward.observe(per_forward);
    }

    /// Records the time between two frontier moves of a choice.
    pub fn chunk_gap(&self, gap: Duration) {
        self.chunk_gap.observe(seconds(gap));
    }
}

/// Requests, latencies and tokens by endpoint.
fn by_endpoint(register: &Register<'_>) -> (IntCounterVec, HistogramVec, IntCounterVec) {
    let requests = (
        "requests_total",
        "Requests for a generation or a count of tokens",
    );
    let latency = Distribution {
        name: "endpoint_latency_seconds",
        help: "From arrival to the end of completely answered requests, by endpoint",
        bounds: LATENCY,
    };
    let tokens = (
        "endpoint_tokens_total",
        "Tokens of completely answered generations, by endpoint",
    );
    (
        register.counter_family(requests, ["endpoint", "outcome"]),
        register.histogram_family(latency, "endpoint"),
        register.counter_family(tokens, ["endpoint", "kind"]),
    )
}
