//! OpenTelemetry's histograms of a model server, `gen_ai.server.*`: for a collector, beside the
//! Prometheus metrics. The names, units and bounds follow OpenTelemetry's semantic conventions for
//! generative AI, which are not stable yet. Without an exporter nothing is recorded.

use std::time::Duration;

use opentelemetry::metrics::Histogram;
use opentelemetry::{KeyValue, global};

use super::{Success, seconds};

/// `gen_ai.provider.name` of every series.
const PROVIDER: &str = "asynclane";

const REQUEST_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKEN_BUCKETS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const PER_TOKEN_BUCKETS: [f64; 13] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

/// The instruments. They belong to the meter provider that is set when they are made.
#[derive(Debug)]
pub struct GenAi {
    request: Histogram<f64>,
    first_token: Histogram<f64>,
    per_token: Histogram<f64>,
}

/// The labels of every series of a request.
#[derive(Clone, Debug)]
pub struct Labels([KeyValue; 4]);

impl Labels {
    /// Labels of a request for an operation (`chat`, `text_completion`) of the served model.
    pub fn new(operation: &'static str, model: &str) -> Self {
        Self([
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.provider.name", PROVIDER),
            KeyValue::new("gen_ai.request.model", model.to_owned()),
            KeyValue::new("gen_ai.response.model", model.to_owned()),
        ])
    }
}

impl GenAi {
    pub(super) fn new() -> Self {
        let meter = global::meter("asynclane");
        let made = |name, text, bounds: &[f64]| {
            let builder = meter.f64_histogram(name).with_unit("s");
            let builder = builder.with_description(text);
            builder.with_boundaries(bounds.to_vec()).build()
        };
        Self {
            request: made(
                "gen_ai.server.request.duration",
                "From arrival to the end of a request",
                &REQUEST_BUCKETS,
            ),
            first_token: made(
                "gen_ai.server.time_to_first_token",
                "From arrival to the first token of completely answered requests",
                &FIRST_TOKEN_BUCKETS,
            ),
            per_token: made(
                "gen_ai.server.time_per_output_token",
                "Time per token after the first of completely answered requests",
                &PER_TOKEN_BUCKETS,
            ),
        }
    }

    /// Records a completely answered request.
    pub fn succeeded(&self, labels: &Labels, facts: &Success) {
        self.request.record(seconds(facts.total), &labels.0);
        if facts.longest > 0 {
            self.first_token.record(seconds(facts.first_token), &labels.0);
        }
        if facts.longest > 1 {
            self.per_token.record(seconds(facts.per_token()), &labels.0);
        }
    }

    /// Records a request that ended otherwise after `total`; `reason` is the error's code or the
    /// outcome.
    pub fn failed(&self, labels: &Labels, total: Duration, reason: &'static str) {
        let mut labels = labels.0.to_vec();
        labels.push(KeyValue::new("error.type", reason));
        self.request.record(seconds(total), &labels);
    }
}
