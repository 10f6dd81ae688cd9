//! The keys of a configuration file, with their defaults.

use serde::{Deserialize, Serialize};

use super::choice::{BackendChoice, DeviceChoice};
use super::log::LogFilter;
use super::values::{AUTO, LogFormat, Text, UnknownFields};
use model::{ExpertSharing, KvDtype, WeightDtype};
use text::{ReasoningFormat, ToolFormat};

/// All configuration keys with their defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address, limits and keys.
    pub server: Server,
    /// The model, its device and its decoder.
    pub model: Model,
    /// Structured output.
    pub structured: Structured,
    /// The reading of texts in requests.
    pub text: TextReading,
    /// Batching and KV memory.
    pub engine: Engine,
    /// The log and the export of spans.
    pub telemetry: Telemetry,
    /// Goes on with a model that does not fit; no key of a file.
    #[serde(skip)]
    pub force: bool,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Server {
    /// Address and port.
    pub listen: String,
    /// Seconds after SIGTERM during which requests are still accepted while `/ready` answers 503.
    pub drain_delay: u64,
    /// Seconds that accepted requests have to finish after new ones are refused.
    pub drain_timeout: u64,
    /// Limits of connections and requests.
    #[serde(flatten)]
    pub limits: ServerLimits,
    /// File with accepted API keys; empty = no key is needed.
    pub api_keys_file: String,
    /// Lets browsers of any origin read answers.
    pub cors: bool,
    /// Serves the playground at `/`.
    pub playground: bool,
    /// Exports metrics under vLLM's names too.
    pub vllm_metrics: bool,
    /// The treatment of a request's unknown fields: `name` them in a header, or `reject` them.
    pub unknown_fields: Text<UnknownFields>,
}

/// `[model]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Model {
    /// A short name of `asynclane models`, a Hugging Face folder, a GGUF file, or an id on the Hub.
    pub path: String,
    /// Model name in requests; empty = the id or the folder's name.
    pub served_name: String,
    /// Data type of the weight matrices: `auto` (the block types of a GGUF file, the codes of quantized
    /// files, `bf16` for 512 MiB and more of weights stored in it, else `f32`), `f32`, `bf16`, `int8`, `int4`,
    /// or on CUDA devices `int8w`.
    pub dtype: Text<WeightDtype>,
    /// Device: `auto`, `cpu`, `cuda` or `cuda:N`.
    pub device: Text<DeviceChoice>,
    /// The implementation on the CPU: `cpu` or `candle`.
    pub backend: Text<BackendChoice>,
    /// Uses the kernels for CUDA devices that no card has run yet.
    pub untested_kernels: bool,
    /// Sharing of experts among the rows of a block: empty = none, `vote=0.15` (a share of all experts)
    /// or `seq=2` (the first experts of each row).
    pub expert_sharing: Text<Option<ExpertSharing>>,
    /// Additions to the weights, and properties of their training.
    #[serde(flatten)]
    pub training: Training,
    /// The default decoder and the draft model.
    #[serde(flatten)]
    pub decoding: DecoderChoice,
    /// The chat template, and the formats of calls and reasoning.
    #[serde(flatten)]
    pub formats: ChatFormats,
    /// Maximum positions of a sequence; 0 = the model's own maximum, or what fits of it.
    pub max_model_len: u32,
}

/// Limits of connections and requests.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ServerLimits {
    /// Maximum open connections, lowered to what the limit of open files allows.
    pub max_connections: usize,
    /// Maximum bytes of a request body.
    pub max_body_bytes: usize,
    /// Maximum bytes of request bodies in flight, each byte counted twice.
    pub max_bytes_in_flight: usize,
    /// Maximum sequences of a request.
    pub max_sequences: u32,
    /// Maximum tokens of a request over all its sequences.
    pub max_request_tokens: u64,
}

/// Additions to the weights, and properties of their training.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Training {
    /// Safetensors file with the filter of the commit rule `learned_filter`; empty = the embedded one
    /// of the demo model, none for other models.
    pub filter: String,
    /// Folder of a LoRA adapter of PEFT, merged into the weights at load, or for the rows of masks or drafts alone;
    /// empty = none.
    pub lora: String,
    /// The mask, if the adapter is for its rows alone; 0 = as the adapter's configuration says.
    pub lora_mask: u32,
    /// Training of block-causal weights for strictly causal rows that predict the next token (I-DLM):
    /// `auto`, `on` or `off`.
    pub introspective: Text<Option<bool>>,
    /// Length of the blocks after the prompt in which weights with full attention were fine-tuned to
    /// attend block-causally (D2F), at most 1024; 0 = none.
    pub prompt_blocks: u32,
    /// Training of the weights to rewrite committed tokens: `auto`, `on` or `off`.
    pub edits: Text<Option<bool>>,
}

/// The default decoder and the draft model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DecoderChoice {
    /// The default decoder.
    pub decoder: String,
    /// A second model of the same tokenizer whose drafts this one verifies, or its DFlash drafter; empty =
    /// none. As `path`.
    pub draft_model: String,
    /// The decoder of the draft model: `auto`, or a preset and settings.
    pub draft_decoder: String,
}

/// The chat template, and the formats of calls and reasoning.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ChatFormats {
    /// File with the chat template; empty = the model's own.
    pub chat_template: String,
    /// The format of function calls: `auto`, as the chat template shows them, or `hermes`,
    /// `llama3_json`, `llada2`, `gemma`, `json`, `qwen3_coder`.
    pub tool_parser: Text<Option<ToolFormat>>,
    /// The marks of reasoning in answers: `none`, or `think`.
    pub reasoning_parser: Text<Option<ReasoningFormat>>,
}

/// `[structured]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Structured {
    /// Lets objects have members that their JSON schema does not name, as the specification
    /// says.
    pub open_objects: bool,
    /// Seconds for the compilation of a grammar, and for its work on one step of a sequence; 0 = no
    /// limit.
    pub timeout: u64,
}

/// `[text]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextReading {
    /// Encodes the name of a control token in a text of a chat as plain text.
    pub split_control_tokens: bool,
}

/// `[engine]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// Maximum rows of a step; 0 = the number at which a CUDA device reaches its full rate of rows, those of about
    /// a second on the CPU (64 to 2048; at least 256 with experts or full attention).
    pub row_budget: u32,
    /// Average rows per step for prefills and refreshes while other sequences decode; 0 = half of the
    /// row budget.
    pub long_quantum: u32,
    /// Maximum rows of a prefill with causal, block-causal and canvas attention; 0 = prompts are not split.
    pub prefill_chunk: u32,
    /// Lets requests with equal prefixes share K/V, if the model's attention allows it.
    pub prefix_cache: bool,
    /// Maximum sequences of a step.
    pub max_running: u32,
    /// Maximum waiting sequences.
    pub max_waiting: u32,
    /// Seconds of a step without progress after which `/health`, `/ready` and `/v1/loads` answer 503; 0 = never.
    pub stall_after: u64,
    /// Seconds of a step without progress after which the process ends with status 70; 0 = never.
    pub step_timeout: u64,
    /// Slots per KV page.
    pub page_size: u32,
    /// Memory for KV pages; `auto` = 512 MiB on the CPU, or what a sequence of full length needs, up to
    /// 8 GiB; the rest of the share on a device.
    pub kv_memory: Text<Option<u64>>,
    /// Number format of keys and values in pages: `auto` (f32 with matrices in f32, otherwise bf16),
    /// `f32`, `bf16` or `int8`.
    pub kv_dtype: Text<Option<KvDtype>>,
    /// Share of a device's memory for weights, steps and KV pages together, in 0..=1; without effect on
    /// the CPU and if `kv_memory` is a size.
    pub device_memory: f64,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Log filter, such as `info` or `server=debug`.
    pub log: Text<LogFilter>,
    /// `text`, or `json` for one object per line.
    pub log_format: Text<LogFormat>,
    /// Base URL of an OpenTelemetry collector for spans and metrics (OTLP over HTTP); empty = that of
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, or no export.
    pub otlp_endpoint: String,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_body_bytes: 16 << 20,
            max_bytes_in_flight: 256 << 20,
            max_sequences: 1024,
            max_request_tokens: 1 << 21,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            limits: ServerLimits::default(),
            listen: "127.0.0.1:8000".to_owned(),
            drain_delay: 0,
            drain_timeout: 50,
            api_keys_file: String::new(),
            cors: false,
            playground: true,
            vllm_metrics: true,
            unknown_fields: Text::literal("name"),
        }
    }
}

impl Default for Training {
    fn default() -> Self {
        Self {
            filter: String::new(),
            lora: String::new(),
            lora_mask: 0,
            introspective: Text::literal(AUTO),
            prompt_blocks: 0,
            edits: Text::literal(AUTO),
        }
    }
}

impl Default for DecoderChoice {
    fn default() -> Self {
        Self {
            decoder: AUTO.to_owned(),
            draft_model: String::new(),
            draft_decoder: AUTO.to_owned(),
        }
    }
}

impl Default for ChatFormats {
    fn default() -> Self {
        Self {
            chat_template: String::new(),
            tool_parser: Text::literal(AUTO),
            reasoning_parser: Text::literal("none"),
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            formats: ChatFormats::default(),
            decoding: DecoderChoice::default(),
            training: Training::default(),
            path: "demo".to_owned(),
            served_name: String::new(),
            dtype: Text::literal(AUTO),
            device: Text::literal(AUTO),
            backend: Text::literal("cpu"),
            untested_kernels: false,
            expert_sharing: Text::literal(""),
            max_model_len: 0,
        }
    }
}

impl Default for Structured {
    fn default() -> Self {
        Self { open_objects: false, timeout: 3 }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            row_budget: 0,
            long_quantum: 0,
            prefill_chunk: 512,
            prefix_cache: true,
            max_running: 64,
            max_waiting: 1024,
            stall_after: 60,
            step_timeout: 300,
            page_size: 16,
            kv_memory: Text::literal(AUTO),
            kv_dtype: Text::literal(AUTO),
            device_memory: 0.9,
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: Text::literal("info"),
            log_format: Text::literal("text"),
            otlp_endpoint: String::new(),
        }
    }
}
