//! A server over the simulated model.

pub mod checks;
pub mod client;
pub mod engine_gate;

use std::sync::Arc;
use std::time::Duration;

use asynclane_server::{
    AppState, Backend, DeviceBytes, Formats, Metrics, MetricsConfig, SamplingDefaults, ServedModel,
    Settings,
};
use axum::Router;
use engine::{EngineConfig, Handle, Observer, StepReport, spawn};
use sim::{SimConfig, SimCounters, SimExecutor};
use step::{ExecuteError, TokenId};
use text::{Tokenizer, TokenizerFiles};

pub use checks::*;
pub use client::*;
pub use engine_gate::{Gate, OpenAtEnd, gated};

pub const MODEL: &str = "org/demo";
pub const STOP: TokenId = 1;
pub const MASK: TokenId = 5;
pub const CONTEXT: u32 = 512;

/// The options of a test server.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
    pub formats: Formats,
    /// Another chat template than the checkpoint's.
    pub template: Option<&'static str>,
    /// Every character is a token.
    pub has_no_merges: bool,
    /// The names of control tokens in a chat are plain text.
    pub split_control_tokens: bool,
    /// Holds every pass until opened.
    pub gate: Option<Gate>,
    /// Passes that fail.
    pub failing: Vec<u64>,
    /// The engine thread ends after its first pass.
    pub engine_dies: bool,
    pub max_running: u32,
    pub max_waiting: u32,
    pub sim: SimConfig,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            formats: Formats::default(),
            template: None,
            has_no_merges: false,
            split_control_tokens: false,
            gate: None,
            failing: Vec::new(),
            engine_dies: false,
            max_running: 8,
            max_waiting: 1024,
            sim: SimConfig {
                pages: 4096,
                vocab_size: 842,
                max_positions: CONTEXT,
                mask: MASK,
                stop_token: STOP,
                text_len: 20..40,
                period: None,
                words: (6..842).collect(),
                ..SimConfig::default()
            },
        }
    }
}

/// Panics on the engine thread, outside of its guarded code.
#[derive(Debug)]
struct Broken;

impl Observer for Broken {
    fn on_step(&mut self, _: &StepReport) {
        panic!("told to end the engine thread");
    }
}

/// A server and its parts that tests inspect.
#[derive(Clone)]
pub struct Server {
    pub state: AppState,
    pub router: Router,
    pub engine: Handle,
    pub tokenizer: Arc<Tokenizer>,
    pub counters: Arc<SimCounters>,
}

fn tokenizer_with(template: Option<&str>, has_no_merges: bool) -> Tokenizer {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = crates.join("../tests/goldens/checkpoint");
    let mut files = TokenizerFiles::read(&folder).unwrap();
    let template = template.map(|text| text.as_bytes().to_vec());
    files.chat_template = template.or(files.chat_template);
    if has_no_merges {
        let bytes = files.tokenizer.unwrap();
        let mut parsed: Value = serde_json::from_slice(&bytes).unwrap();
        parsed["model"]["merges"] = json!([]);
        files.tokenizer = Some(parsed.to_string().into_bytes());
    }
    Tokenizer::new(&files).unwrap()
}

pub fn server() -> Server {
    server_with(Options::default())
}

/// The configuration of the metrics of a device with this memory.
pub fn metrics_config(device_memory: DeviceBytes) -> MetricsConfig {
    MetricsConfig {
        model_name: MODEL.to_owned(),
        backend: "sim".to_owned(),
        page_size: 16,
        pages: 1,
        kv_dtype: "f32".to_owned(),
        row_budget: 4096,
        device_memory,
        vllm_aliases: true,
    }
}

pub fn server_with(options: Options) -> Server {
    let mut tokenizer = tokenizer_with(options.template, options.has_no_merges);
    if options.split_control_tokens {
        tokenizer.split_control_tokens().unwrap();
    }
    let tokenizer = Arc::new(tokenizer);
    let metrics = Metrics::new(&MetricsConfig {
        page_size: options.sim.page_size,
        pages: options.sim.pages,
        ..metrics_config(DeviceBytes::default())
    });
    let (gate, failing) = (options.gate.clone(), options.failing.clone());
    let executor = SimExecutor::new(options.sim).unwrap().with_hook(move |pass, _| {
        gate.iter().for_each(Gate::pass);
        match failing.contains(&pass) {
            true => Err(ExecuteError("told to fail".to_owned())),
            false => Ok(()),
        }
    });
    let counters = executor.counters();
    let config = EngineConfig {
        max_running: options.max_running,
        max_waiting: options.max_waiting,
        row_budget: 4096,
        long_quantum: 100_000,
        prefill_chunk: 0,
        grammar_timeout: Duration::ZERO,
        prefix_cache: true,
        max_model_len: None,
        classes: tokenizer.classes(),
        wait_order: Arc::new(engine::ByPriority),
        capabilities: engine::Capabilities::default(),
    };
    let observer = match options.engine_dies {
        true => Box::new(Broken),
        false => metrics.observer(),
    };
    let (engine, _) = spawn(&config, Box::new(executor), observer).unwrap();
    let model = ServedModel {
        id: MODEL.to_owned(),
        created: 1_760_000_000,
        owner: "asynclane".to_owned(),
        is_demo: true,
        parameters: 3_000_000,
        device: "CPU".to_owned(),
        fingerprint: "0.1.0-sim".to_owned(),
        stop_tokens: vec![STOP, 4],
        defaults: SamplingDefaults::default(),
        decoders: engine::decoding::Decoders::of(engine.limits().kind()),
        formats: options.formats,
    };
    let state = AppState::new(options.settings);
    let backend = Backend {
        engine: engine.clone(),
        tokenizer: Arc::clone(&tokenizer),
        model: Arc::new(model),
        metrics,
    };
    state.install(backend).unwrap();
    let router = asynclane_server::router(state.clone());
    Server { state, router, engine, tokenizer, counters }
}

/// A server whose options differ from the usual ones by `change`.
pub fn server_where(change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options::default();
    change(&mut options);
    server_with(options)
}

/// A server with a context that holds the functions of a request.
pub fn wide_server() -> Server {
    wide_server_where(|_| ())
}

/// A server with such a context, whose other options differ from the usual ones by `change`.
pub fn wide_server_where(change: impl FnOnce(&mut Options)) -> Server {
    server_where(|options| {
        options.sim.max_positions = 8192;
        change(options);
    })
}

/// A server with such a context and another chat template.
pub fn server_with_template(template: &'static str) -> Server {
    wide_server_where(|options| options.template = Some(template))
}

/// A server before its model is loaded.
pub fn loading_router() -> Router {
    asynclane_server::router(AppState::new(Settings::default()))
}
