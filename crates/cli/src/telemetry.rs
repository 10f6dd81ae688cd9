//! The log on standard error, and tracing spans for a collector (OTLP over HTTP).

mod export;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use server::SpanCounters;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::config::{Config, LogFormat};

/// Environment variables that enable the export of spans, beside the configuration.
const VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The filter of the running log, which can be replaced.
pub type LogFilter = reload::Handle<EnvFilter, Registry>;

/// Running telemetry; dropping it exports the last spans.
pub struct Telemetry {
    filter: LogFilter,
    provider: Option<SdkTracerProvider>,
    counters: Arc<OnceLock<SpanCounters>>,
}

impl Telemetry {
    /// Starts logging, and exporting spans if an endpoint is set.
    ///
    /// # Errors
    /// An invalid filter, format or endpoint.
    pub fn start(config: &Config) -> Result<Self> {
        let (filter, format) = config.log()?;
        // A request's log lines name its trace, exported or not.
        global::set_text_map_propagator(TraceContextPropagator::new());
        let counters = Arc::new(OnceLock::new());
        let endpoint = config.telemetry.otlp_endpoint.as_str();
        let is_given = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let wanted = !endpoint.is_empty() || VARIABLES.iter().any(is_given);
        let provider = match wanted {
            true => Some(export::provider(endpoint, Arc::clone(&counters))?),
            false => None,
        };
        let spans = provider.as_ref().map(|provider| {
            let tracer = provider.tracer("asynclane");
            tracing_opentelemetry::layer()
                .with_tracer(tracer)
                .with_location(false)
                .with_threads(false)
        });
        let (layer, filter) = reload::Layer::new(filter);
        tracing_subscriber::registry()
            .with(layer)
            .with(log(format))
            .with(spans)
            .init();
        Ok(Self {
            filter,
            provider,
            counters,
        })
    }

    /// The filter of the log.
    pub fn filter(&self) -> LogFilter {
        self.filter.clone()
    }

    /// Counts spans in `counters` from now on.
    pub fn count(&self, counters: &SpanCounters) {
        let _ = self.counters.set(counters.clone());
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider {
            // The collector may be gone; shutdown waits at most the timeout of one export.
            let _ = provider.shutdown();
        }
    }
}

fn log<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed(),
    }
}
