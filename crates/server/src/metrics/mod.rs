//! All metrics: one registry, updated per step by the engine and per request by the server.

mod alias;
mod connections;
mod genai;
mod path_request;
mod pools;
mod process;
mod rates;
mod register;
mod requests;
mod spans;
mod steps;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::{Load, Observer, PoolLoad, Pulse, StepReport};
use prometheus::{Gauge, Registry, TextEncoder};

pub use connections::Connections;
pub use genai::{GenAi, Labels};
pub use path_request::PathRequest;
use pools::Pools;
use process::Process;
use rates::Rates;
use register::{Register, metrics};
pub use requests::{Outcome, RequestMetrics, Success};
pub use spans::SpanCounters;
use steps::StepMetrics;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Bytes of a CUDA device's memory by use; zeros on the CPU.
#[derive(Clone, Debug, Default)]
pub struct DeviceBytes {
    /// Weights.
    pub weights: u64,
    /// The arrays of the largest step.
    pub step: u64,
    /// Keys and values.
    pub kv: u64,
    /// Captured graphs, at present.
    pub graphs: Arc<AtomicU64>,
}

/// The values of the constant labels.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Label `model_name` of every series.
    pub model_name: String,
    /// Label `backend` of `build_info`: device and number format.
    pub backend: String,
    /// Slots per KV page.
    pub page_size: u32,
    /// KV pages.
    pub pages: u32,
    /// Number format of keys and values.
    pub kv_dtype: String,
    /// Maximum rows of a step.
    pub row_budget: u32,
    /// The memory of a CUDA device.
    pub device_memory: DeviceBytes,
    /// True if metrics that vLLM has too are repeated under its names.
    pub vllm_aliases: bool,
}

/// All metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: RequestMetrics,
    connections: Connections,
    spans: SpanCounters,
    genai: GenAi,
    steps: StepMetrics,
    /// Locked by the engine thread once a step and by a scrape, each for well under 1 µs.
    rates: Mutex<Rates>,
    epoch: Instant,
    scrape: Scrape,
}

/// The metrics that a scrape refreshes and renders.
#[derive(Debug)]
struct Scrape {
    registry: Registry,
    aliases: bool,
    /// KV pages of the pool.
    pages: u32,
    gauges: ScrapeGauges,
    /// The gauge of the device memory that graphs take, and its value.
    graphs: (Gauge, Arc<AtomicU64>),
    pools: Pools,
    /// `None` without `/proc`.
    process: Option<Process>,
}

metrics! {
    /// Gauges that are computed at each scrape.
    struct ScrapeGauges(register) {
        running: Gauge = register.gauge("num_requests_running", "Sequences in the batch"),
        waiting: Gauge = register.gauge("num_requests_waiting", "Sequences accepted but not in the batch"),
        usage: Gauge = register.gauge("kv_cache_usage_perc", "Share of the KV pages in use, from 0 to 1"),
        pages_used: Gauge = register.gauge("kv_pages_used", "KV pages in use"),
        generated: Gauge = register.gauge("generation_tokens_per_second",
            "Tokens delivered to clients per second, over the last 10 seconds"),
        committed: Gauge = register.gauge("committed_tokens_per_second",
            "Tokens committed per second, over the last 10 seconds"),
        age: Gauge = register.gauge("engine_age_seconds",
            "Time since the engine's step began or last made progress, 0 while it waits for requests"),
    }
}

impl Metrics {
    /// Registers everything, so that all series exist from the first scrape.
    pub fn new(config: &MetricsConfig) -> Self {
        let registry = Registry::new();
        let register = Register::new(&registry, &config.model_name);
        constants(&register, config);
        let graphs = device_memory(&register, &config.device_memory);
        let inner = Inner {
            requests: RequestMetrics::new(&register),
            connections: Connections::new(&register),
            spans: SpanCounters::new(&register),
            genai: GenAi::new(),
            steps: StepMetrics::new(&register),
            rates: Mutex::default(),
            epoch: Instant::now(),
            scrape: Scrape {
                aliases: config.vllm_aliases,
                pages: config.pages,
                gauges: ScrapeGauges::new(&register),
                graphs: (graphs, Arc::clone(&config.device_memory.graphs)),
                pools: Pools::new(&register),
                process: Process::new(&register),
                registry,
            },
        };
        Self { inner: Arc::new(inner) }
    }

    /// The observer for the engine's steps.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(self.clone())
    }

    /// The metrics of requests.
    pub fn requests(&self) -> &RequestMetrics {
        &self.inner.requests
    }

    /// The metrics of the listener.
    pub fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    /// The counters for an exporter of tracing spans.
    pub fn spans(&self) -> &SpanCounters {
        &self.inner.spans
    }

    /// The histograms for an OpenTelemetry collector.
    pub fn genai(&self) -> &GenAi {
        &self.inner.genai
    }

    /// Share of the prompt tokens that the prefix cache had, in `0.0..=1.0`.
    pub fn prefix_hit_rate(&self) -> f64 {
        self.inner.steps.prefix_hit_rate()
    }

    /// Tokens delivered to clients per second, over the last 10 seconds.
    pub fn generated_per_second(&self) -> f64 {
        let now = self.inner.epoch.elapsed();
        self.rates(|rates| rates.per_second(now)).0
    }

    /// The exposition text, given the engine's load and pulse and the pools of threads by name.
    pub fn render(&self, load: Load, pulse: Pulse, pools: &[(&'static str, PoolLoad)]) -> String {
        let scrape = &self.inner.scrape;
        let now = self.inner.epoch.elapsed();
        let rates = self.rates(|rates| rates.per_second(now));
        scrape.gauges.set(load, scrape.pages, rates);
        scrape.gauges.age.set(seconds(pulse.age));
        let (graphs, bytes) = &scrape.graphs;
        graphs.set(bytes.load(Ordering::Relaxed) as f64);
        scrape.pools.set(pools);
        if let Some(process) = &scrape.process {
            process.refresh();
        }
        let mut families = scrape.registry.gather();
        if scrape.aliases {
            alias::append(&mut families);
        }
        TextEncoder::new()
            .encode_to_string(&families)
            .expect("every registered family holds a metric and writing to a string succeeds")
    }

    fn rates<T>(&self, action: impl FnOnce(&mut Rates) -> T) -> T {
        let rates = self.inner.rates.lock();
        action(&mut rates.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Metrics {
    fn on_step(&mut self, report: &StepReport) {
        self.inner.steps.observe(report);
        let generated = report.delays.emit.len() as u64;
        let committed = u64::from(report.commits.total());
        if generated + committed > 0 {
            let now = self.inner.epoch.elapsed();
            self.rates(|rates| rates.record(now, generated, committed));
        }
    }
}

impl ScrapeGauges {
    fn set(&self, load: Load, pages: u32, rates: (f64, f64)) {
        self.running.set(load.running.into());
        self.waiting.set(load.waiting.into());
        self.usage.set(f64::from(load.pages_used) / f64::from(pages.max(1)));
        self.pages_used.set(load.pages_used.into());
        self.generated.set(rates.0);
        self.committed.set(rates.1);
    }
}

/// Gauges that never change.
fn constants(register: &Register<'_>, config: &MetricsConfig) {
    register.gauge("kv_pages_total", "KV pages of the pool").set(config.pages.into());
    register
        .gauge("row_budget", "Largest number of query positions per step")
        .set(config.row_budget.into());
    let geometry = [
        ("block_size", config.page_size.to_string()),
        ("num_gpu_blocks", config.pages.to_string()),
        ("cache_dtype", config.kv_dtype.clone()),
    ];
    register.info(
        "cache_config_info",
        "Slots per KV page, KV pages, and their number format; always 1",
        &geometry,
    );
    let build =
        [("version", env!("CARGO_PKG_VERSION").to_owned()), ("backend", config.backend.clone())];
    register.info("build_info", "Version and backend; always 1", &build);
}

/// Registers the gauges of a device's memory; returns the one that changes, that of its graphs.
fn device_memory(register: &Register<'_>, memory: &DeviceBytes) -> Gauge {
    let kinds = ["weights", "step", "kv", "graphs"];
    let help = "Bytes of the CUDA device's memory by use; 0 on the CPU";
    let [weights, step, kv, graphs] = register.gauges("device_memory_bytes", help, "kind", kinds);
    weights.set(memory.weights as f64);
    step.set(memory.step as f64);
    kv.set(memory.kv as f64);
    graphs
}

/// A duration as the unit of every time metric.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
