//! Command-line arguments. A flag given wins over its environment variable, that over the
//! configuration files, those over the defaults.

mod bench;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use bench::{BenchArgs, BenchTarget, Candidates};

/// An OpenAI-compatible inference server for diffusion language models.
#[derive(Debug, Parser)]
#[command(name = "asynclane", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP (no argument: the embedded demo model on 127.0.0.1:8000).
    Serve(ServeArgs),
    /// Answer one prompt on the terminal.
    Generate(GenerateArgs),
    /// Compare decoders on the demo problems: accuracy, forwards, positions, speed.
    Bench(BenchArgs),
    /// Train the filter of the commit rule `learned_filter` for a model (Learn2PD).
    TrainFilter(TrainFilterArgs),
    /// Look at a model or a running server.
    Inspect(InspectArgs),
    /// Check configuration files and print what they resolve to.
    CheckConfig(CheckConfigArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Reads the command line and the environment.
    ///
    /// # Errors
    /// What clap has to say, which may be an answer (`--help`).
    pub fn read() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let Some(model) = cli.command.model_mut() {
            model.environment = by_environment(&matches);
        }
        Ok(cli)
    }
}

impl Command {
    fn model_mut(&mut self) -> Option<&mut ModelArgs> {
        match self {
            Self::Serve(args) => Some(&mut args.model),
            Self::Generate(args) => Some(&mut args.model),
            Self::Bench(args) => Some(&mut args.model),
            Self::TrainFilter(args) => Some(&mut args.model),
            Self::Inspect(args) => Some(&mut args.model),
            Self::CheckConfig(_) | Self::Completions { .. } => None,
        }
    }
}

/// Ids of the arguments that a variable gave, of the innermost command: what outer ones share is
/// among its own.
fn by_environment(matches: &ArgMatches) -> BTreeSet<String> {
    let mut innermost = matches;
    while let Some((_, below)) = innermost.subcommand() {
        innermost = below;
    }
    let given = |id: &&str| innermost.value_source(id) == Some(ValueSource::EnvVariable);
    let ids = innermost.ids().map(|id| id.as_str());
    ids.filter(given).map(str::to_owned).collect()
}

/// What every command that loads a model understands.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// Configuration files; later ones win.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "ASYNCLANE_CONFIG",
        value_delimiter = ','
    )]
    pub config: Vec<PathBuf>,
    /// A Hugging Face folder, a GGUF file with its tokenizer beside it, an id on the hub
    /// (`org/name` or `org/name@revision`), or `demo` or `demo-wedlm`, the embedded models.
    #[arg(long, global = true, env = "ASYNCLANE_MODEL")]
    pub model: Option<String>,
    /// Decoder: a preset's name, and `key=value` settings, separated by commas.
    #[arg(long, global = true, env = "ASYNCLANE_DECODER")]
    pub decoder: Option<String>,
    /// The filter of the commit rule `learned_filter`, a safetensors file; the demo model brings
    /// its own.
    #[arg(long, global = true, value_name = "FILE", env = "ASYNCLANE_FILTER")]
    pub filter: Option<String>,
    /// How matrices are kept and multiplied: f32, bf16 or int8.
    #[arg(long, global = true, env = "ASYNCLANE_DTYPE")]
    pub dtype: Option<String>,
    /// What computes: auto (a CUDA device where build and machine have one, else the CPU), cpu or
    /// cuda.
    #[arg(long, global = true, env = "ASYNCLANE_DEVICE")]
    pub device: Option<String>,
    /// Dynamic expert sharing (DES) for models with experts: `vote=0.15` or `seq=2`.
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        env = "ASYNCLANE_EXPERT_SHARING"
    )]
    pub expert_sharing: Option<String>,
    /// Most positions of a sequence, prompt plus budget.
    #[arg(long, global = true, env = "ASYNCLANE_MAX_MODEL_LEN")]
    pub max_model_len: Option<u32>,
    /// Memory for KV pages, such as `512MiB` or `4GiB`, or auto: 512 MiB on the CPU, on a CUDA
    /// device what weights and the largest step leave of its share.
    #[arg(long, global = true, env = "ASYNCLANE_KV_MEMORY")]
    pub kv_memory: Option<String>,
    /// Share of a CUDA device's memory that may be taken where `--kv-memory` is auto, above 0 and
    /// at most 1 (0.9 by default).
    #[arg(
        long,
        global = true,
        value_name = "SHARE",
        env = "ASYNCLANE_DEVICE_MEMORY"
    )]
    pub device_memory: Option<f64>,
    /// Most rows of a step.
    #[arg(long, global = true, env = "ASYNCLANE_ROW_BUDGET")]
    pub row_budget: Option<u32>,
    /// Rows of a step that prefills and refreshes take on average while other sequences decode;
    /// 0 = half of the row budget.
    #[arg(long, global = true, env = "ASYNCLANE_LONG_QUANTUM")]
    pub long_quantum: Option<u32>,
    /// Forward every prompt whole, even where another request has left the K/V of its beginning
    /// (causal and block-causal models).
    #[arg(long, global = true, env = "ASYNCLANE_NO_PREFIX_CACHE")]
    pub no_prefix_cache: bool,
    /// Most sequences in the batch.
    #[arg(long, global = true, env = "ASYNCLANE_MAX_RUNNING")]
    pub max_running: Option<u32>,
    /// Any key of the configuration, such as `engine.page_size=32`; may be repeated.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Ids of the arguments that an environment variable gave.
    #[arg(skip)]
    pub environment: BTreeSet<String>,
}

#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The name that requests give; the id or the folder's name by default.
    #[arg(long, env = "ASYNCLANE_SERVED_MODEL_NAME")]
    pub served_model_name: Option<String>,
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, env = "ASYNCLANE_LISTEN")]
    pub listen: Option<String>,
    /// Most sequences that wait for a place in the batch.
    #[arg(long, env = "ASYNCLANE_MAX_WAITING")]
    pub max_waiting: Option<u32>,
    /// Seconds after SIGTERM in which requests are still taken while `/ready` says 503.
    #[arg(long, env = "ASYNCLANE_DRAIN_DELAY")]
    pub drain_delay: Option<u64>,
    /// Seconds that accepted requests have to finish once new ones are refused after SIGTERM.
    #[arg(long, env = "ASYNCLANE_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<u64>,
    /// File with the API keys that are accepted: lines `name:key` or `name:sha256:hex`.
    #[arg(long, value_name = "FILE", env = "ASYNCLANE_API_KEYS_FILE")]
    pub api_keys_file: Option<String>,
    /// One more API key that is accepted. As an argument every user of the machine can see it:
    /// prefer the environment variable or a file.
    #[arg(
        long,
        value_name = "KEY",
        env = "ASYNCLANE_API_KEY",
        hide_env_values = true
    )]
    pub api_key: Option<Secret>,
    /// Log filter, such as `info` or `server=debug`.
    #[arg(long, env = "ASYNCLANE_LOG")]
    pub log: Option<String>,
    /// How the log looks: text, or json for one object per line.
    #[arg(long, env = "ASYNCLANE_LOG_FORMAT")]
    pub log_format: Option<String>,
    /// Base address of an OpenTelemetry collector that spans go to (OTLP over HTTP), such as
    /// `http://127.0.0.1:4318`; `OTEL_EXPORTER_OTLP_ENDPOINT` does too.
    #[arg(long, value_name = "URL", env = "ASYNCLANE_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Print the configuration with where every value comes from, and end.
    #[arg(long)]
    pub print_config: bool,
}

/// Text that is never printed.
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

#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// The prompt; standard input if it is absent.
    pub prompt: Option<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Generation budget in tokens.
    #[arg(long, default_value_t = 256)]
    pub max_tokens: u32,
    /// Seed of the sampling noise.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// 0 = greedy.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Take the prompt as it is, without the chat template.
    #[arg(long)]
    pub raw: bool,
    /// Draw every step and the lane tree of the answer.
    #[arg(long)]
    pub trace: bool,
    /// Print the cost of the answer.
    #[arg(long)]
    pub stats: bool,
}

#[derive(Args, Debug)]
pub struct TrainFilterArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The safetensors file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Text file with the prompts to answer, one per line, instead of the demo's.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "problems"])]
    pub prompts: Option<PathBuf>,
    /// Families of the demo's training problems, separated by commas: sums, snippets, lists, or
    /// `all`.
    #[arg(long, default_value = "all")]
    pub task: String,
    /// Problems per family, at least 10.
    #[arg(long, default_value_t = 300)]
    pub problems: usize,
    /// Generation budget in tokens.
    #[arg(long, default_value_t = 256)]
    pub max_tokens: u32,
    /// Block length that the filter is for.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub block_length: u32,
    /// Hidden units.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub hidden: u32,
    /// Passes over all examples.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// AdamW's learning rate.
    #[arg(long, default_value_t = 0.003)]
    pub learning_rate: f32,
    /// Sequences in flight at once while the answers are generated.
    #[arg(long, default_value_t = 1)]
    pub concurrency: usize,
    /// Seed of the problem generator and of the initial weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug)]
pub struct InspectArgs {
    #[command(subcommand)]
    pub what: Option<InspectCommand>,
    #[command(flatten)]
    pub model: ModelArgs,
}

#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    /// What was detected in a checkpoint (the default).
    Model,
    /// How many sequences fit and how fast a step can be, on paper.
    Capacity(CapacityArgs),
    /// Processor, threads, what multiplies each dtype here, and the CUDA device.
    Device {
        /// Run every kernel of the CUDA device against the CPU's.
        #[arg(long)]
        selftest: bool,
    },
    /// Logits of one full forward, as a safetensors file.
    Logits {
        /// Token ids, separated by commas.
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
        /// The file to write: one f32 tensor `logits` of shape [tokens, vocab].
        #[arg(long)]
        out: PathBuf,
    },
    /// Whether a running server is healthy (exit code 0 or 69).
    Health {
        /// Its address.
        #[arg(long, env = "ASYNCLANE_LISTEN", default_value = "127.0.0.1:8000")]
        address: String,
    },
}

#[derive(Args, Clone, Debug)]
pub struct CapacityArgs {
    /// Positions of a sequence in the middle of its answer, prompt and canvas.
    #[arg(long, default_value_t = 1536, value_parser = clap::value_parser!(u32).range(1..))]
    pub context: u32,
    /// Bytes of a number in K/V: 4 as this server keeps them on a CPU, 2 for bf16 on a card.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub kv_bytes: u8,
    /// A device of yours: memory in GB, memory bandwidth in GB/s and dense bf16 arithmetic in
    /// TFLOP/s, as `MEMORY,BANDWIDTH,FLOPS`. Without it, four common cards.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', num_args = 3)]
    pub on: Vec<f64>,
}

#[derive(Args, Debug)]
pub struct CheckConfigArgs {
    /// The files, in order of precedence; later ones win.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}
