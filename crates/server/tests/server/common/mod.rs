//! A server over the simulated model, and clients for it.

pub mod translated;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use asynclane_server::{
    ApiKeys, AppState, Backend, Formats, Metrics, MetricsConfig, SamplingDefaults, ServedModel,
    Settings,
};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use engine::{EngineConfig, Handle, Observer, StepReport, spawn};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sim::{SimConfig, SimCounters, SimExecutor};
use step::{ExecuteError, TokenId};
use text::{Tokenizer, TokenizerFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

pub const MODEL: &str = "org/demo";
pub const STOP: TokenId = 1;
pub const MASK: TokenId = 5;
pub const CONTEXT: u32 = 512;

/// Holds forward passes, or lets them pass.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Number of passes that may run.
    open: Arc<(Mutex<u64>, Condvar)>,
}

impl Gate {
    pub fn open(&self) {
        self.admit(u64::MAX);
    }

    /// Lets `passes` passes run.
    pub fn admit(&self, passes: u64) {
        *self.open.0.lock().unwrap() = passes;
        self.open.1.notify_all();
    }

    fn pass(&self) {
        let open = self.open.0.lock().unwrap();
        *self.open.1.wait_while(open, |open| *open == 0).unwrap() -= 1;
    }
}

/// Opens the gate when a test ends, so that the engine thread can end too.
#[derive(Debug)]
pub struct OpenAtEnd(pub Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// How a test server differs from the usual one.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
    pub formats: Formats,
    /// Another chat template than the checkpoint's.
    pub template: Option<&'static str>,
    /// Whether names of control tokens in a chat are plain text.
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

pub fn tokenizer() -> Tokenizer {
    tokenizer_with(None)
}

fn tokenizer_with(template: Option<&str>) -> Tokenizer {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/goldens/checkpoint"
    );
    let mut files = TokenizerFiles::read(std::path::Path::new(folder)).unwrap();
    let template = template.map(|text| text.as_bytes().to_vec());
    files.chat_template = template.or(files.chat_template);
    Tokenizer::new(&files).unwrap()
}

pub fn server() -> Server {
    server_with(Options::default())
}

pub fn server_with(options: Options) -> Server {
    let mut tokenizer = tokenizer_with(options.template);
    if options.split_control_tokens {
        tokenizer.split_control_tokens().unwrap();
    }
    let tokenizer = Arc::new(tokenizer);
    let metrics = Metrics::new(&MetricsConfig {
        model_name: MODEL.to_owned(),
        backend: "sim".to_owned(),
        page_size: options.sim.page_size,
        pages: options.sim.pages,
        kv_dtype: "f32".to_owned(),
        row_budget: 4096,
        vllm_aliases: true,
    });
    let (gate, failing) = (options.gate.clone(), options.failing.clone());
    let executor = SimExecutor::new(options.sim)
        .unwrap()
        .with_hook(move |pass, _| {
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
    Server {
        state,
        router,
        engine,
        tokenizer,
        counters,
    }
}

impl Server {
    /// The answer to one request, without a socket.
    pub async fn call(&self, request: Request<Body>) -> (StatusCode, HeaderMap, Vec<u8>) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        (parts.status, parts.headers, bytes)
    }

    pub async fn get(&self, path: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
        self.call(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    pub async fn raw(&self, method: Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let (status, _, bytes) = self
            .call(request.body(Body::from(body.to_vec())).unwrap())
            .await;
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.raw(Method::POST, path, body.to_string().as_bytes())
            .await
    }

    /// A completion that must succeed; `extra` fields over the usual ones.
    pub async fn complete(&self, extra: Value) -> Value {
        let (status, answer) = self.post("/v1/completions", &completion(extra)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// A chat that must succeed.
    pub async fn chat(&self, extra: Value) -> Value {
        let (status, answer) = self.post("/v1/chat/completions", &chat(extra)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// The bytes of a streamed answer.
    pub async fn stream(&self, path: &str, body: &Value) -> String {
        let request = Request::post(path)
            .body(Body::from(body.to_string()))
            .unwrap();
        let (status, _, bytes) = self.call(request).await;
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }

    pub async fn metrics(&self) -> String {
        String::from_utf8(self.get("/metrics").await.2).unwrap()
    }

    /// Serves on a free port; ends when `shutdown` does.
    pub async fn listen(
        &self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> (
        std::net::SocketAddr,
        tokio::task::JoinHandle<std::io::Result<()>>,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (
            address,
            tokio::spawn(asynclane_server::serve(
                listener,
                self.state.clone(),
                shutdown,
            )),
        )
    }

    /// Waits until the engine has no running or waiting sequence and no page in use. Every turn
    /// yields to the engine thread; the bound ends a failed test.
    pub async fn until_idle(&self) {
        self.until(|server| {
            let load = server.engine.load();
            load.running == 0 && load.waiting == 0 && load.pages_used == 0
        })
        .await;
    }

    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..5_000_000 {
            if holds(self) {
                return;
            }
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
        panic!("the expected state never came");
    }
}

/// `extra` over the fields of a plain completion.
pub fn completion(extra: Value) -> Value {
    merge(json!({"model": MODEL, "prompt": "Mia has 12 eggs."}), extra)
}

/// `extra` over the fields of a plain chat.
pub fn chat(extra: Value) -> Value {
    merge(
        json!({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}),
        extra,
    )
}

pub fn merge(mut base: Value, extra: Value) -> Value {
    let Value::Object(extra) = extra else {
        return base;
    };
    for (key, value) in extra {
        base[key] = value;
    }
    base
}

/// The parsed `data:` payloads of a stream that ends with `[DONE]`; checks the framing.
pub fn events(stream: &str) -> Vec<Value> {
    let body = stream
        .strip_suffix("data: [DONE]\n\n")
        .expect("the end mark comes last");
    let events = body.split_terminator("\n\n").map(|event| {
        let json = event.strip_prefix("data: ").expect("only data lines");
        assert!(
            !json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']),
            "{json}"
        );
        serde_json::from_str(json).unwrap()
    });
    events.collect()
}

/// The value of a series, by its name and labels as in the text.
pub fn series(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let line = line.unwrap_or_else(|| panic!("no series {series} in\n{metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Writes `request` to a new connection.
pub async fn send(address: std::net::SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A POST request with a JSON body, as HTTP/1.1 text.
pub fn post_text(path: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Reads until `mark` has been seen, or to the end.
pub async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&bytes).contains(mark) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The named events of a stream, each with its data; checks the framing.
pub fn named_events(stream: &str) -> Vec<(String, Value)> {
    let events = stream.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').expect("a name and data");
        let name = name.strip_prefix("event: ").expect("the name comes first");
        let data = data.strip_prefix("data: ").expect("one line of data");
        (name.to_owned(), serde_json::from_str(data).unwrap())
    });
    events.collect()
}

/// One key with the text `key`.
pub fn one_key(key: &str) -> ApiKeys {
    ApiKeys::default().with_key("test", key)
}
