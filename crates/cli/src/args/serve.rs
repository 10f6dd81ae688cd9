//! Arguments of `serve`.

use clap::Args;
use serde::Serialize;

use super::ModelArgs;

// Arguments of `serve`.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct ServeArgs {
    /// The model: the same as --model.
    #[arg(value_name = "MODEL")]
    #[serde(skip)]
    pub name: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    pub model: ModelArgs,
    /// Model name in requests; default: the id or the folder's name.
    #[arg(long, env = "ASYNCLANE_SERVED_MODEL_NAME")]
    pub served_model_name: Option<String>,
    #[command(flatten, next_help_heading = "Address")]
    #[serde(flatten)]
    pub address: AddressArgs,
    #[command(flatten, next_help_heading = "Limits")]
    #[serde(flatten)]
    pub limits: LimitArgs,
    /// File with accepted API keys, one per line: `name:key` or `name:sha256:hex`.
    #[arg(long, value_name = "FILE", env = "ASYNCLANE_API_KEYS_FILE")]
    pub api_keys_file: Option<String>,
    /// One more accepted API key. Every user of the machine can see it in the process list: prefer
    /// the environment variable or a file.
    #[arg(long, value_name = "KEY", env = "ASYNCLANE_API_KEY", hide_env_values = true)]
    #[serde(skip)]
    pub api_key: Option<Secret>,
    #[command(flatten, next_help_heading = "Log and telemetry")]
    #[serde(flatten)]
    pub telemetry: TelemetryArgs,
    /// Print the configuration with the origin of every value, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
}

// The address to listen on.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct AddressArgs {
    /// Address and port to listen on, or a port of 127.0.0.1; port 0 takes a free port.
    #[arg(long, env = "ASYNCLANE_LISTEN")]
    pub listen: Option<String>,
    /// Address to listen on, with the port of --port or 8000.
    #[arg(long, conflicts_with = "listen")]
    #[serde(skip)]
    pub host: Option<String>,
    /// Port to listen on, at the address of --host or 127.0.0.1.
    #[arg(short, long, conflicts_with = "listen")]
    #[serde(skip)]
    pub port: Option<u16>,
}

// Limits of requests, of connections and of time.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct LimitArgs {
    /// Maximum sequences that wait for a place in the batch.
    #[arg(long, env = "ASYNCLANE_MAX_WAITING")]
    pub max_waiting: Option<u32>,
    /// Maximum bytes of request bodies in flight, each byte counted twice.
    #[arg(long, env = "ASYNCLANE_MAX_BYTES_IN_FLIGHT")]
    pub max_bytes_in_flight: Option<u64>,
    /// Maximum sequences of a request: prompts times `n` or `best_of`.
    #[arg(long, env = "ASYNCLANE_MAX_SEQUENCES")]
    pub max_sequences: Option<u32>,
    /// Maximum tokens of a request, prompt and budget of all its sequences.
    #[arg(long, env = "ASYNCLANE_MAX_REQUEST_TOKENS")]
    pub max_request_tokens: Option<u64>,
    /// Maximum open connections; lowered to what the limit of open files allows.
    #[arg(long, env = "ASYNCLANE_MAX_CONNECTIONS")]
    pub max_connections: Option<u64>,
    /// Seconds of a step without progress after which probes answer 503; 0 = never.
    #[arg(long, value_name = "SECONDS", env = "ASYNCLANE_STALL_AFTER")]
    pub stall_after: Option<u64>,
    /// Seconds of a step without progress after which the process ends with status 70; 0 = never.
    #[arg(long, value_name = "SECONDS", env = "ASYNCLANE_STEP_TIMEOUT")]
    pub step_timeout: Option<u64>,
    /// Seconds after SIGTERM during which requests are still accepted while `/ready` answers 503.
    #[arg(long, env = "ASYNCLANE_DRAIN_DELAY")]
    pub drain_delay: Option<u64>,
    /// Seconds that accepted requests have to finish after new ones are refused.
    #[arg(long, env = "ASYNCLANE_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<u64>,
}

// The log, and the export of spans and metrics.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct TelemetryArgs {
    /// Log filter: a level such as `info`, or directives such as `warn,server=debug`.
    #[arg(long, env = "ASYNCLANE_LOG")]
    pub log: Option<String>,
    /// Log format: text, or json (one object per line).
    #[arg(long, env = "ASYNCLANE_LOG_FORMAT")]
    pub log_format: Option<String>,
    /// Base URL of an OpenTelemetry collector for spans and metrics (OTLP over HTTP), such as
    /// `http://127.0.0.1:4318`; `OTEL_EXPORTER_OTLP_ENDPOINT` has the same effect.
    #[arg(long, value_name = "URL", env = "ASYNCLANE_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

/// A secret; its debug output is masked.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("***")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}
