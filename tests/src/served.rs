//! The real server on a free local port, over the goldens' checkpoint in f32 or over another executor
//! with the same tokenizer.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use server::{
    AppState, Backend, DeviceBytes, Formats, Metrics, MetricsConfig, Route, SamplingDefaults,
    ServedModel, Settings,
};
use step::Executor;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::client::Client;
use crate::run;

/// The model name in requests.
pub const MODEL: &str = "demo";

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct Served {
    client: Client,
    runtime: Option<Runtime>,
}

impl Served {
    /// Starts a server with the default settings of `asynclane serve`.
    pub fn start() -> Self {
        Self::over(run::executor(2048), 64, 2048)
    }

    /// Starts a server with at most `max_running` sequences in the batch and `row_budget` rows in a step.
    pub fn over(executor: Box<dyn Executor>, max_running: u32, row_budget: u32) -> Self {
        Self::serve(backend(executor, max_running, row_budget), Vec::new())
    }

    /// Starts a server with more endpoints than its own.
    pub fn with_routes(executor: Box<dyn Executor>, routes: Vec<Route>) -> Self {
        Self::serve(backend(executor, 64, 2048), routes)
    }

    fn serve(backend: Backend, routes: Vec<Route>) -> Self {
        let state = state(backend, Settings::default());
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("the system gives threads");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("the listener is bound");
        let router = server::router_with(state.clone(), routes);
        let shutdown = std::future::pending();
        runtime.spawn(server::serve_router(listener, state, router, shutdown));
        Self { client: Client::new(address), runtime: Some(runtime) }
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        self.client
    }
}

/// The state of a server without a socket: `executor` behind an engine.
pub fn state_over(executor: Box<dyn Executor>, settings: Settings) -> AppState {
    state(backend(executor, 64, 2048), settings)
}

fn state(backend: Backend, settings: Settings) -> AppState {
    let state = AppState::new(settings);
    assert!(state.install(backend).is_ok(), "a new server has no model");
    state
}

/// A model behind an engine that runs at most `max_running` sequences together, and at most
/// `row_budget` rows in a step.
fn backend(executor: Box<dyn Executor>, max_running: u32, row_budget: u32) -> Backend {
    let tokenizer = Arc::new(run::tokenizer());
    let step::ExecutorSpec { page_size, pages, .. } = executor.spec();
    let metrics = Metrics::new(&MetricsConfig {
        model_name: MODEL.to_owned(),
        backend: "cpu-f32".to_owned(),
        page_size,
        pages,
        kv_dtype: "f32".to_owned(),
        row_budget,
        device_memory: DeviceBytes::default(),
        vllm_aliases: true,
    });
    let config =
        engine::EngineConfig { max_running, row_budget, ..run::config(tokenizer.classes()) };
    let spawned = engine::spawn(&config, executor, metrics.observer());
    let (engine, _) = spawned.expect("the system gives a thread");
    let model = ServedModel {
        id: MODEL.to_owned(),
        created: 1_760_000_000,
        owner: "asynclane".to_owned(),
        is_demo: true,
        parameters: 3_000_000,
        device: "CPU".to_owned(),
        fingerprint: "0.1.0-cpu-f32".to_owned(),
        stop_tokens: vec![1, 4],
        defaults: SamplingDefaults::default(),
        decoders: engine::decoding::Decoders::of(engine.limits().kind()),
        formats: Formats::default(),
    };
    Backend { engine, tokenizer, model: Arc::new(model), metrics }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A failed test may leave requests behind; do not wait for them.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Applies `work` to all `items`, `width` at a time; returns the results in the same order.
pub fn in_parallel<T: Sync, R: Send>(
    width: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = numbers.map_while(|index| Some((index, items.get(index)?)));
        let done = mine.map(|(index, item)| (index, work(item)));
        done.collect::<Vec<_>>()
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        let done = joined.flat_map(|done| done.expect("the work does not panic"));
        done.collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
