//! The log on standard error, and tracing spans and metrics for a collector (OTLP over HTTP).

mod export;
mod lines;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use server::SpanCounters;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::config::{Config, LogFormat};
use lines::Lines;

/// The variables that enable the export in addition to the configuration, and the one that
/// disables it (`none`).
const SPANS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"];
const METRICS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER"];
/// The variable that enables both.
const COMMON_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The filter of the running log, which can be replaced.
pub type LogFilter = reload::Handle<EnvFilter, Registry>;

/// Running telemetry; dropping it exports the last spans and metrics and writes the last lines.
pub struct Telemetry {
    filter: LogFilter,
    spans: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    counters: Arc<OnceLock<SpanCounters>>,
    lines: Lines,
}

impl Telemetry {
    /// Starts logging, and exporting spans and metrics if an endpoint is set.
    ///
    /// # Errors
    /// An invalid endpoint.
    pub fn start(config: &Config) -> Result<Self> {
        let filter = config.telemetry.log.filter();
        let format = *config.telemetry.log_format;
        // A request's log lines name its trace, exported or not.
        global::set_text_map_propagator(TraceContextPropagator::new());
        let counters = Arc::new(OnceLock::new());
        let endpoint = config.telemetry.otlp_endpoint.as_str();
        let provider = match is_wanted(endpoint, SPANS) {
            true => Some(export::spans(endpoint, Arc::clone(&counters))?),
            false => None,
        };
        let metrics = match is_wanted(endpoint, METRICS) {
            true => Some(export::metrics(endpoint)?),
            false => None,
        };
        if let Some(metrics) = &metrics {
            global::set_meter_provider(metrics.clone());
        }
        let spans = provider.as_ref().map(|provider| {
            let tracer = provider.tracer("asynclane");
            tracing_opentelemetry::layer()
                .with_tracer(tracer)
                .with_location(false)
                .with_threads(false)
        });
        let lines = Lines::new(std::io::stderr(), Arc::clone(&counters))?;
        let (layer, filter) = reload::Layer::new(filter);
        tracing_subscriber::registry()
            .with(layer)
            .with(log(format, lines.clone()))
            .with(spans)
            .init();
        // The standard library's own would write to standard error and wait for its reader.
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        Ok(Self { filter, spans: provider, metrics, counters, lines })
    }

    /// The filter of the log.
    pub fn filter(&self) -> LogFilter {
        self.filter.clone()
    }

    /// Counts spans and lost lines in `counters` from now on.
    pub fn count(&self, counters: &SpanCounters) {
        let _ = self.counters.set(counters.clone());
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // The collector may be gone; a shutdown waits at most the timeout of one export.
        if let Some(Err(error)) = self.spans.as_ref().map(|spans| spans.shutdown()) {
            tracing::warn!(%error, "the last spans are lost");
        }
        if let Some(metrics) = &self.metrics {
            let _ = metrics.shutdown();
        }
        self.lines.flush();
    }
}

/// True if something is exported to the configured endpoint, or to one in the environment.
fn is_wanted(endpoint: &str, [enables, disables]: [&str; 2]) -> bool {
    let is_given = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_off = std::env::var_os(disables).is_some_and(|value| value == "none");
    !is_off && (!endpoint.is_empty() || [COMMON_ENDPOINT, enables].into_iter().any(is_given))
}

fn log<S>(format: LogFormat, lines: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(lines);
    match format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
    }
}
