//! The keys of a configuration file, with their defaults.

use model::WeightDtype;
use serde::{Deserialize, Serialize};

use crate::device::DeviceChoice;

/// The decoder that suits the model; the memory for KV pages that suits what computes.
pub const AUTO: &str = "auto";

/// Everything a server can be told, with its defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub server: Server,
    pub model: Model,
    pub engine: Engine,
    pub telemetry: Telemetry,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port.
    pub listen: String,
    /// Seconds after SIGTERM in which requests are still taken while `/ready` says 503.
    pub drain_delay: u64,
    /// Seconds that accepted requests have to finish once new ones are refused after SIGTERM.
    pub drain_timeout: u64,
    /// Most bytes of a request body.
    pub max_body_bytes: usize,
    /// File with the API keys that are accepted; empty = everybody may use the server.
    pub api_keys_file: String,
    /// Whether browsers of any origin may read answers.
    pub cors: bool,
    /// Whether the playground is served at `/`.
    pub playground: bool,
    /// Whether metrics are exported under vLLM's names too.
    pub vllm_metrics: bool,
}

/// `[model]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// `demo`, a Hugging Face folder, or an id on the hub.
    pub path: String,
    /// The name that requests give; empty = the id, or the folder's name.
    pub served_name: String,
    /// How matrices are kept and multiplied: `f32`, `bf16` or `int8`.
    pub dtype: String,
    /// What computes: `auto`, `cpu` or `cuda`.
    pub device: String,
    /// How rows of a block agree on experts: empty = not at all, `vote=0.15` (a share of all
    /// experts) or `seq=2` (what each row has among its first so many).
    pub expert_sharing: String,
    /// Most positions of a sequence; 0 = what the model was built for.
    pub max_model_len: u32,
    /// Decoder of a request that names none.
    pub decoder: String,
    /// Safetensors file with the filter of the commit rule `learned_filter`; empty = the demo
    /// model's own, none for other models.
    pub filter: String,
}

/// `[engine]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// Most rows of a step.
    pub row_budget: u32,
    /// Rows of a step that prefills and refreshes take on average while other sequences decode;
    /// 0 = half of the row budget.
    pub long_quantum: u32,
    /// Whether requests that begin with the same tokens share their K/V, where they can.
    pub prefix_cache: bool,
    /// Most sequences in the batch.
    pub max_running: u32,
    /// Most sequences that wait.
    pub max_waiting: u32,
    /// Slots per KV page.
    pub page_size: u32,
    /// Memory for KV pages; `auto` = 512 MiB on the CPU, what is left on a device.
    pub kv_memory: String,
    /// Share of a device's memory that weights, steps and KV pages may take together, in 0..=1;
    /// of no effect on the CPU and where `kv_memory` is a size.
    pub device_memory: f64,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Log filter, such as `info` or `server=debug`.
    pub log: String,
    /// `text`, or `json` for one object per line.
    pub log_format: String,
    /// Base address of an OpenTelemetry collector (OTLP over HTTP) that tracing spans go to; empty
    /// = where `OTEL_EXPORTER_OTLP_ENDPOINT` says, nowhere without it.
    pub otlp_endpoint: String,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8000".to_owned(),
            drain_delay: 0,
            drain_timeout: 50,
            max_body_bytes: 16 << 20,
            api_keys_file: String::new(),
            cors: false,
            playground: true,
            vllm_metrics: true,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            path: "demo".to_owned(),
            served_name: String::new(),
            dtype: WeightDtype::F32.name().to_owned(),
            device: DeviceChoice::Auto.name().to_owned(),
            expert_sharing: String::new(),
            max_model_len: 0,
            decoder: AUTO.to_owned(),
            filter: String::new(),
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            row_budget: 2048,
            long_quantum: 0,
            prefix_cache: true,
            max_running: 64,
            max_waiting: 1024,
            page_size: 16,
            kv_memory: AUTO.to_owned(),
            device_memory: 0.9,
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: "text".to_owned(),
            otlp_endpoint: String::new(),
        }
    }
}
