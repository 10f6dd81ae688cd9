//! The record of one request: times, outcome, metrics, log line.

use std::time::{Duration, Instant};

use engine::{ClientId, FinishReason};

use crate::error::ApiError;
use crate::http::shutdown::InFlight;
use crate::metrics::{Labels, Metrics, Outcome, Success};
use crate::pipeline::assemble::{Delta, reason_name};
use crate::pipeline::spans::{Caller, Spans};
use crate::pipeline::usage::Usage;

/// Follows a request to its end. A record that is dropped without an outcome counts as cancelled.
#[derive(Debug)]
pub struct Record {
    metrics: Metrics,
    labels: Labels,
    path: &'static str,
    request_id: String,
    client: ClientId,
    spans: Spans,
    arrival: Instant,
    times: Times,
    /// Tokens of all prompts.
    prompt_tokens: u64,
    choices: Vec<Progress>,
    /// Tokens of the longest choice that is delivered.
    longest: u64,
    reason: FinishReason,
    outcome: Option<Outcome>,
    in_flight: Option<InFlight>,
}

/// Times since the arrival.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Time until the first sequence ran.
    queue: Option<Duration>,
    first_token: Option<Duration>,
    last_token: Duration,
}

/// The progress of one choice.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Time of the last frontier move.
    moved: Option<Duration>,
    tokens: u64,
}

impl Record {
    /// Starts the record of a request that arrives now.
    pub fn new(metrics: Metrics, caller: &Caller<'_>) -> Self {
        Self {
            metrics,
            labels: Labels::new(caller.operation, caller.model),
            path: caller.path,
            request_id: caller.request_id.to_owned(),
            client: caller.client,
            spans: Spans::new(caller),
            arrival: Instant::now(),
            times: Times::default(),
            prompt_tokens: 0,
            choices: Vec::new(),
            longest: 0,
            reason: FinishReason::Stop,
            outcome: None,
            in_flight: None,
        }
    }

    /// The request's id.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The client that sent the request.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Keeps `in_flight` until the record is dropped.
    pub fn hold(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
    }

    /// Notes that the engine accepted `choices` sequences, with prompts of `prompt_tokens` tokens in all.
    pub fn accepted(&mut self, choices: usize, prompt_tokens: u64) {
        self.choices = vec![Progress::default(); choices];
        self.prompt_tokens = prompt_tokens;
    }

    /// Notes the times and the finish reason of `delta`.
    pub fn observe(&mut self, delta: &Delta) {
        let now = self.arrival.elapsed();
        if delta.started {
            self.times.queue.get_or_insert_with(|| {
                self.spans.prefill();
                now
            });
        }
        if !delta.token_ids.is_empty() {
            self.times.first_token.get_or_insert_with(|| {
                self.spans.decode();
                now
            });
            self.times.last_token = now;
            let choice = &mut self.choices[delta.index];
            choice.tokens += delta.token_ids.len() as u64;
            self.longest = self.longest.max(choice.tokens);
            if let Some(before) = choice.moved.replace(now) {
                self.metrics.requests().chunk_gap(now.saturating_sub(before));
            }
        }
        if delta.finish == Some(FinishReason::Length) {
            self.reason = FinishReason::Length;
        }
    }

    /// Takes the finish reason and the longest from `choices`, the selected sequences.
    pub fn ended_as(&mut self, choices: &[Delta]) {
        let length = |choice: &Delta| choice.finish == Some(FinishReason::Length);
        self.reason = match choices.iter().any(length) {
            true => FinishReason::Length,
            false => FinishReason::Stop,
        };
        let lengths = choices.iter().map(|choice| choice.token_ids.len() as u64);
        self.longest = lengths.max().unwrap_or(0);
    }

    /// Ends the record of a completely answered request.
    pub fn succeed(&mut self, usage: &Usage) {
        let total = self.arrival.elapsed();
        let first = self.times.first_token.unwrap_or(total);
        let diffusion = usage.diffusion.as_ref();
        let facts = Success {
            reason: self.reason,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            longest: self.longest,
            forwards: diffusion.map_or(0, |diffusion| diffusion.forwards.forwards),
            queue: self.times.queue.unwrap_or(total),
            first_token: first,
            decode: self.times.last_token.saturating_sub(first),
            total,
        };
        self.metrics.requests().succeeded(self.path, &facts);
        self.metrics.genai().succeeded(&self.labels, &facts);
        self.close(Outcome::Ok);
        self.spans.succeeded(&facts, usage);
        let _entered = self.spans.request().enter();
        tracing::info!(
            status = 200,
            finish_reason = reason_name(self.reason),
            decoder = diffusion.map(|diffusion| diffusion.decoder.as_str()),
            prompt_tokens = usage.prompt_tokens,
            cached_tokens =
                usage.prompt_tokens_details.as_ref().map(|details| details.cached_tokens),
            completion_tokens = usage.completion_tokens,
            nfe = facts.forwards,
            tpf = diffusion.map(|diffusion| rounded(diffusion.forwards.tokens_per_forward)),
            forks = diffusion.map(|diffusion| diffusion.forks),
            queue_ms = millis(facts.queue),
            ttft_ms = millis(facts.first_token),
            tpot_ms = millis(facts.per_token()),
            e2e_ms = millis(total),
            "finished"
        );
    }

    /// Ends the record with `error`.
    pub fn fail(&mut self, error: &ApiError) {
        let outcome = Outcome::new(error.code);
        self.close(outcome);
        let (status, _, code) = error.code.row();
        let total = self.arrival.elapsed();
        self.metrics.genai().failed(&self.labels, total, code);
        let e2e_ms = millis(total);
        self.spans.failed(outcome, code);
        let _entered = self.spans.request().enter();
        tracing::info!(status = status.as_u16(), code, e2e_ms, "{}", outcome.name());
    }

    /// The request's tracing span.
    pub fn span(&self) -> &tracing::Span {
        self.spans.request()
    }

    fn close(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            self.metrics.requests().ended(self.path, outcome);
            if outcome != Outcome::Ok && self.times.queue.is_some() {
                let generated = self.choices.iter().map(|choice| choice.tokens).sum();
                self.metrics.requests().count_tokens(self.path, self.prompt_tokens, generated);
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            self.close(Outcome::Cancelled);
            let total = self.arrival.elapsed();
            let reason = Outcome::Cancelled.name();
            self.metrics.genai().failed(&self.labels, total, reason);
            let e2e_ms = millis(total);
            self.spans.failed(Outcome::Cancelled, "");
            let _entered = self.spans.request().enter();
            tracing::info!(disconnected = true, e2e_ms, "cancelled");
        }
    }
}

/// Milliseconds with three decimals.
fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

/// A number with three decimals, for the log.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
