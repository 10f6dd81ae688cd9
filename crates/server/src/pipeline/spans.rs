//! The tracing spans of a request: the one place with OpenTelemetry's attribute names.
//!
//! `request` contains `queue`, `prefill` and `decode`, one after another. The `gen_ai.*` names
//! follow OpenTelemetry's semantic conventions for generative AI, which are not stable yet. No
//! span contains prompts, answers or token ids.

use axum::http::HeaderMap;
use engine::ClientId;
use opentelemetry::trace::{Status, TraceContextExt, TraceId};
use opentelemetry::{Value, global};
use opentelemetry_http::HeaderExtractor;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::metrics::{Outcome, Success};
use crate::pipeline::assemble::reason_name;
use crate::pipeline::usage::Usage;

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// The path of its endpoint.
    pub path: &'static str,
    /// `gen_ai.operation.name`.
    pub operation: &'static str,
    /// The name of its API key.
    pub key: Option<&'a str>,
    /// The client's id for the engine.
    pub client: ClientId,
    /// The served model's name.
    pub model: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
}

/// The spans of one request.
#[derive(Debug)]
pub struct Spans {
    request: Span,
    /// The current phase of the request.
    phase: Span,
}

impl Spans {
    /// Starts the spans of a request. A W3C `traceparent` header makes them part of the client's
    /// trace, whose id is logged.
    pub fn new(caller: &Caller<'_>) -> Self {
        let parent = global::get_text_map_propagator(|propagator| {
            propagator.extract(&HeaderExtractor(caller.headers))
        });
        let given = parent.span().span_context().trace_id();
        let request = tracing::info_span!(
            "request",
            request_id = caller.request_id,
            trace_id = field::Empty,
            route = caller.path,
            model = caller.model,
            key = caller.key,
        );
        // Fails only without a tracing layer, where the parent has no use.
        let _ = request.set_parent(parent);
        let own = request.context().span().span_context().trace_id();
        if let Some(id) = [own, given].into_iter().find(|id| *id != TraceId::INVALID) {
            request.record("trace_id", field::display(id));
        }
        request.set_attribute("gen_ai.operation.name", caller.operation);
        request.set_attribute("gen_ai.request.model", caller.model.to_owned());
        let phase = tracing::info_span!(parent: &request, "queue");
        Self { request, phase }
    }

    /// The span of the whole request.
    pub fn request(&self) -> &Span {
        &self.request
    }

    /// Starts the prefill phase: the first sequence runs.
    pub fn prefill(&mut self) {
        self.phase = tracing::info_span!(parent: &self.request, "prefill");
    }

    /// Starts the decode phase: the first token arrived.
    pub fn decode(&mut self) {
        self.phase = tracing::info_span!(parent: &self.request, "decode");
        self.request.add_event("first_token", Vec::new());
    }

    /// Ends the spans of a completely answered request.
    pub fn succeeded(&mut self, facts: &Success, usage: &Usage) {
        let span = &self.request;
        let reasons =
            Value::Array(vec![opentelemetry::StringValue::from(reason_name(facts.reason))].into());
        span.set_attribute("gen_ai.response.finish_reasons", reasons);
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        span.set_attribute("gen_ai.usage.input_tokens", count(facts.prompt_tokens));
        span.set_attribute("gen_ai.usage.output_tokens", count(facts.completion_tokens));
        if let Some(diffusion) = &usage.diffusion {
            span.set_attribute("asynclane.decoder", diffusion.decoder.clone());
            span.set_attribute("asynclane.forwards", count(facts.forwards));
            span.set_attribute("asynclane.refreshes", count(diffusion.forwards.refresh_forwards));
            span.set_attribute("asynclane.positions", count(diffusion.forwards.positions));
            span.set_attribute("asynclane.forks", count(diffusion.forks));
        }
        self.phase = Span::none();
    }

    /// Ends the spans of another request; `code` is the error's, or empty.
    pub fn failed(&mut self, outcome: Outcome, code: &'static str) {
        self.request.set_attribute(
            "error.type",
            match code {
                "" => outcome.name(),
                code => code,
            },
        );
        if outcome == Outcome::Failed {
            self.request.set_status(Status::error(code));
        }
        self.phase = Span::none();
    }
}
