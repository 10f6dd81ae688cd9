//! Export of spans and of the metrics `gen_ai.server.*` to a collector: OTLP as protobuf over HTTP,
//! spans in batches, metrics once in an interval, each on a thread of its own.
//!
//! The queue of spans is bounded: a slow or absent collector costs spans and nothing else.
//! `OTEL_BSP_*`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_EXPORTER_OTLP_*` have their standard meaning.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use server::SpanCounters;

use crate::exit;
use crate::names::without_password;

/// Timeout of one export.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The counters of spans, set once the metrics exist.
type Counters = Arc<OnceLock<SpanCounters>>;

/// A provider of spans that exports to `endpoint`, the base URL of a collector; if it is empty, to
/// the endpoint in the environment.
///
/// # Errors
/// An invalid endpoint.
pub fn spans(endpoint: &str, counters: Counters) -> Result<SdkTracerProvider> {
    let builder =
        opentelemetry_otlp::SpanExporter::builder().with_http().with_http_client(Client::new());
    let builder = match endpoint.trim_end_matches('/') {
        "" => builder,
        base => builder.with_endpoint(format!("{base}/v1/traces")),
    };
    let exporter = builder.build().map_err(|error| refused(&error, endpoint))?;
    let processor = CountingProcessor {
        inner: BatchSpanProcessor::builder(CountingExporter {
            inner: exporter,
            counters: Arc::clone(&counters),
            has_failed: AtomicBool::new(false),
        })
        .build(),
        counters,
    };
    Ok(SdkTracerProvider::builder()
        .with_resource(resource())
        .with_span_processor(processor)
        .build())
}

/// A provider of metrics that exports to `endpoint`, as [`spans`].
///
/// # Errors
/// An invalid endpoint.
pub fn metrics(endpoint: &str) -> Result<SdkMeterProvider> {
    let builder =
        opentelemetry_otlp::MetricExporter::builder().with_http().with_http_client(Client::new());
    let builder = match endpoint.trim_end_matches('/') {
        "" => builder,
        base => builder.with_endpoint(format!("{base}/v1/metrics")),
    };
    let exporter = builder.build().map_err(|error| refused(&error, endpoint))?;
    Ok(SdkMeterProvider::builder()
        .with_resource(resource())
        .with_periodic_exporter(exporter)
        .build())
}

/// The error of `endpoint`, whose password nobody is to see.
fn refused(error: &impl std::fmt::Display, endpoint: &str) -> anyhow::Error {
    let error = error.to_string();
    let error = match endpoint {
        "" => error,
        endpoint => error.replace(endpoint, &without_password(endpoint)),
    };
    exit::failure(exit::CONFIG, format!("telemetry.otlp_endpoint: {error}"))
}

/// Name and version of the service that exports.
fn resource() -> Resource {
    let mut resource = Resource::builder();
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("asynclane");
    }
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    resource.with_attribute(version).build()
}

/// Counts ended spans.
#[derive(Debug)]
struct CountingProcessor {
    inner: BatchSpanProcessor,
    counters: Counters,
}

/// Counts exported spans, and says when exports begin to fail.
#[derive(Debug)]
struct CountingExporter<T> {
    inner: T,
    counters: Counters,
    /// True if the last export failed.
    has_failed: AtomicBool,
}

impl SpanProcessor for CountingProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if let Some(counters) = self.counters.get() {
            counters.ended();
        }
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<T: SpanExporter> SpanExporter for CountingExporter<T> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.inner.export(batch).await;
        if let (Ok(()), Some(counters)) = (&result, self.counters.get()) {
            counters.exported(count);
        }
        // One line, not one for every batch.
        let has_failed = self.has_failed.swap(result.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&result, has_failed) {
            tracing::warn!(%error, spans = count, "the collector takes no spans");
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// A blocking HTTP client; only the exporting thread uses it.
#[derive(Debug)]
struct Client(ureq::Agent);

impl Client {
    fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        Self(config.new_agent())
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let answer = self.0.run(Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = answer.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(std::future::ready(self.send(request)))
    }
}
