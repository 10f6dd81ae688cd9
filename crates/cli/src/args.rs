//! Command-line arguments. Precedence: flag, environment variable, configuration file, default.

mod determinism;
mod foreign;
mod inspect;
mod serve;
mod shelf;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::api::fields::numbers::{Count, Int, Temperature};

pub use determinism::DeterminismArgs;
pub(crate) use foreign::advice;
pub use inspect::{CapacityArgs, HealthArgs, InspectArgs, InspectCommand, StepsArgs};
pub use serve::{AddressArgs, LimitArgs, Secret, ServeArgs, TelemetryArgs};
pub use shelf::{ModelsArgs, ModelsCommand, PullArgs};

/// An OpenAI-compatible inference server for diffusion language models.
#[derive(Debug, Parser)]
#[command(
    name = "asynclane",
    version,
    about = "Serves diffusion language models behind an OpenAI-compatible API"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP (no argument: the embedded demo model on 127.0.0.1:8000).
    #[command(before_help = "\
Examples:
  asynclane serve
  asynclane serve -m ORG/NAME -p 8080
  asynclane serve ./FOLDER --dtype int8 --max-model-len 4096")]
    Serve(Box<ServeArgs>),
    /// Chat with a model on the terminal (no argument: the embedded demo model).
    #[command(before_help = "\
Examples:
  asynclane run
  asynclane run ORG/NAME
  asynclane run demo \"Reverse the list coins, eggs, books, pens.\"
  echo \"Reverse the list coins, eggs, books, pens.\" | asynclane run")]
    Run(Box<RunArgs>),
    /// Answer one prompt, and show how it was decoded.
    Generate(Box<GenerateArgs>),
    /// List the models with short names, the memory that they need here, and those in the hub's cache.
    Models(ModelsArgs),
    /// Download a model into the hub's cache, if it fits on this machine, and print its folder.
    Pull(Box<PullArgs>),
    /// Inspect a model, this machine or a running server.
    Inspect(Box<InspectArgs>),
    /// Check configuration files and print the resulting configuration.
    CheckConfig(CheckConfigArgs),
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Reads the command line and the environment.
    ///
    /// # Errors
    /// A report of clap, which may be an answer (`--help`).
    pub fn read() -> Result<Self, clap::Error> {
        if let Some(option) = foreign::joined(std::env::args_os()) {
            let mut error = clap::Error::new(ErrorKind::UnknownArgument);
            error.insert(ContextKind::InvalidArg, ContextValue::String(option));
            return Err(error);
        }
        Self::of(std::env::args_os())
    }

    /// Reads a command line, beside the environment.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, clap::Error> {
        let mut program = Self::command();
        let matches = program.try_get_matches_from_mut(arguments)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        // A model of the environment gives way. `run` may have a prompt in its place.
        if matches!(cli.command, Command::Serve(_) | Command::Inspect(_))
            && ["name", "model"].iter().all(|id| is_given(&matches, id))
        {
            let mut error = clap::Error::new(ErrorKind::ArgumentConflict).with_cmd(&program);
            for (kind, argument) in
                [(ContextKind::InvalidArg, "[MODEL]"), (ContextKind::PriorArg, "--model <MODEL>")]
            {
                error.insert(kind, ContextValue::String(argument.to_owned()));
            }
            return Err(error);
        }
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
            Self::Run(args) => Some(&mut args.model),
            Self::Generate(args) => Some(&mut args.model),
            Self::Inspect(args) => Some(&mut args.model),
            Self::Pull(args) => Some(&mut args.model),
            Self::Models(_) | Self::CheckConfig(_) | Self::Completions { .. } => None,
        }
    }
}

/// True if the command line has an argument of the command or of one inside.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let is_known = matches.ids().any(|known| known == id);
    let by_line = is_known && matches.value_source(id) == Some(ValueSource::CommandLine);
    by_line || matches.subcommand().is_some_and(|(_, inner)| is_given(inner, id))
}

/// The ids of the innermost command's arguments whose value an environment variable gave; arguments
/// that commands share are among them.
pub fn by_environment(matches: &ArgMatches) -> BTreeSet<String> {
    let mut innermost = matches;
    while let Some((_, below)) = innermost.subcommand() {
        innermost = below;
    }
    let given = |id: &&str| innermost.value_source(id) == Some(ValueSource::EnvVariable);
    let ids = innermost.ids().map(|id| id.as_str());
    ids.filter(given).map(str::to_owned).collect()
}

// Arguments of every command that loads a model. The id of an argument is the last part of its
// configuration key, except for those in `config/overrides.rs`.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct ModelArgs {
    /// Configuration files, separated by commas; later files override earlier ones.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "ASYNCLANE_CONFIG",
        value_delimiter = ','
    )]
    #[serde(skip)]
    pub config: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Model")]
    #[serde(flatten)]
    pub weights: WeightArgs,
    #[command(flatten, next_help_heading = "Decoding")]
    #[serde(flatten)]
    pub decoding: DecoderArgs,
    #[command(flatten, next_help_heading = "Engine")]
    #[serde(flatten)]
    pub engine: EngineArgs,
    /// Set any configuration key, such as `engine.page_size=32`; repeatable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    #[serde(skip)]
    pub set: Vec<String>,
    /// Go on with a model that does not fit into the memory.
    #[arg(long, global = true)]
    #[serde(skip)]
    pub force: bool,
    /// Ids of the arguments whose value an environment variable gave.
    #[arg(skip)]
    #[serde(skip)]
    pub environment: BTreeSet<String>,
}

// The checkpoint, its adapters and its device.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct WeightArgs {
    /// A Hugging Face folder, a GGUF file, an id on the Hub (`org/name`, `org/name@revision`, or
    /// `org/name:FILE` for a GGUF file), or a short name of `asynclane models`, such as `demo`.
    #[arg(short, long, global = true, env = "ASYNCLANE_MODEL")]
    pub model: Option<String>,
    /// Safetensors file with the filter of the commit rule `learned_filter`; the demo model has an
    /// embedded one.
    #[arg(long, global = true, value_name = "FILE", env = "ASYNCLANE_FILTER")]
    pub filter: Option<String>,
    /// Folder of a LoRA adapter of PEFT (`adapter_config.json`, `adapter_model.safetensors`), which is merged
    /// into the weights at load, or is for the rows of masks or drafts alone.
    #[arg(long, global = true, value_name = "FOLDER", env = "ASYNCLANE_LORA")]
    pub lora: Option<String>,
    /// The mask's token, for an adapter that is for the rows of masks alone, as I-DLM's (151669); 0 = as the
    /// adapter's configuration says.
    #[arg(long, global = true, value_name = "TOKEN", env = "ASYNCLANE_LORA_MASK")]
    pub lora_mask: Option<u32>,
    /// File with a chat template (Jinja) in place of the model's own.
    #[arg(long, global = true, value_name = "FILE", env = "ASYNCLANE_CHAT_TEMPLATE")]
    pub chat_template: Option<String>,
    /// Strictly causal rows that predict the next token, for which weights of SDAR's architecture such as
    /// I-DLM's were trained: auto (by the model's name), on or off.
    #[arg(long, global = true, env = "ASYNCLANE_INTROSPECTIVE")]
    pub introspective: Option<String>,
    /// Length of the blocks after the prompt in which weights with full attention were fine-tuned to attend
    /// block-causally, as D2F's were; 0 = none.
    #[arg(long, global = true, value_name = "LENGTH", env = "ASYNCLANE_PROMPT_BLOCKS")]
    pub prompt_blocks: Option<u32>,
    /// Rewriting of committed tokens, for which weights such as LLaDA2.1's were trained: auto (by
    /// the model's name), on or off.
    #[arg(long, global = true, env = "ASYNCLANE_EDITS")]
    pub edits: Option<String>,
    /// Data type of the weight matrices: auto (the block types of a GGUF file, the codes of quantized files,
    /// bf16 for 512 MiB and more of weights stored in it, else f32), f32, bf16 (also bfloat16, float16,
    /// half), int8, int4, or int8w (int8 with inputs in bf16, on CUDA devices only).
    #[arg(long, global = true, env = "ASYNCLANE_DTYPE")]
    pub dtype: Option<String>,
    /// Device: auto (a CUDA device if the build supports it and the machine has one, else the CPU),
    /// cpu, cuda (the first device) or cuda:N.
    #[arg(long, global = true, env = "ASYNCLANE_DEVICE")]
    pub device: Option<String>,
    /// Implementation on the CPU: cpu (this server's kernels) or candle (plain tensor code of candle, the
    /// slow reference of the selftest).
    #[arg(long, global = true, env = "ASYNCLANE_BACKEND")]
    pub backend: Option<String>,
    /// Also use the kernels for CUDA devices that no card has run yet (fused products, bulk copies, overlapping
    /// launches); `asynclane inspect device --selftest` compares them with the others first.
    #[arg(
        long,
        global = true,
        env = "ASYNCLANE_UNTESTED_KERNELS",
        value_parser = BoolishValueParser::new()
    )]
    pub untested_kernels: bool,
    /// Dynamic expert sharing (DES) for models with experts: `vote=0.15` or `seq=2`.
    #[arg(long, global = true, value_name = "HOW", env = "ASYNCLANE_EXPERT_SHARING")]
    pub expert_sharing: Option<String>,
    /// Maximum positions of a sequence, prompt plus budget; -1 = the model's own length, or what fits of it.
    #[arg(
        long,
        global = true,
        env = "ASYNCLANE_MAX_MODEL_LEN",
        value_parser = length,
        allow_negative_numbers = true
    )]
    pub max_model_len: Option<u32>,
}

// The default decoder and the draft model.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct DecoderArgs {
    /// Default decoder: a preset and `key=value` settings, separated by commas.
    #[arg(long, global = true, env = "ASYNCLANE_DECODER")]
    pub decoder: Option<String>,
    /// A second model of the same tokenizer that drafts tokens, which --model verifies, or a DFlash drafter;
    /// --model must be a causal one. The same names as for --model.
    #[arg(long, global = true, value_name = "MODEL", env = "ASYNCLANE_DRAFT_MODEL")]
    pub draft_model: Option<String>,
    /// Decoder of the draft model: a preset and `key=value` settings, separated by commas, or auto.
    #[arg(long, global = true, value_name = "DECODER", env = "ASYNCLANE_DRAFT_DECODER")]
    pub draft_decoder: Option<String>,
}

// Batches and KV pages.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct EngineArgs {
    /// Memory for KV pages, such as `512MiB` or `4GiB`, or auto: on the CPU 512 MiB, or what a
    /// sequence of full length needs, up to 8 GiB; on a CUDA device the rest of its share after weights
    /// and the largest step.
    #[arg(long, global = true, env = "ASYNCLANE_KV_MEMORY")]
    pub kv_memory: Option<String>,
    /// Number format of keys and values in KV pages: auto (f32 with matrices in f32, otherwise bf16), f32, bf16 or int8.
    #[arg(long, global = true, env = "ASYNCLANE_KV_DTYPE")]
    pub kv_dtype: Option<String>,
    /// Share of a CUDA device's memory to use if `--kv-memory` is auto, above 0 and at most 1 (default
    /// 0.9).
    #[arg(long, global = true, value_name = "SHARE", env = "ASYNCLANE_DEVICE_MEMORY")]
    pub device_memory: Option<f64>,
    /// Maximum rows of a step; 0 = the number at which a CUDA device reaches its full rate of rows, those of about
    /// a second on the CPU (64 to 2048).
    #[arg(long, global = true, env = "ASYNCLANE_ROW_BUDGET")]
    pub row_budget: Option<u32>,
    /// Average rows per step for prefills and refreshes while other sequences decode; 0 = half of the
    /// row budget.
    #[arg(long, global = true, env = "ASYNCLANE_LONG_QUANTUM")]
    pub long_quantum: Option<u32>,
    /// Maximum rows of a prefill with causal, block-causal and canvas models: longer prompts go in
    /// chunks, between which others decode (default 512); 0 = prompts are not split.
    #[arg(long, global = true, env = "ASYNCLANE_PREFILL_CHUNK")]
    pub prefill_chunk: Option<u32>,
    /// Do not share the K/V of equal prompt prefixes between requests (causal and block-causal models).
    #[arg(
        long,
        global = true,
        env = "ASYNCLANE_NO_PREFIX_CACHE",
        value_parser = BoolishValueParser::new()
    )]
    pub no_prefix_cache: bool,
    /// Maximum sequences of a step.
    #[arg(long, global = true, env = "ASYNCLANE_MAX_RUNNING")]
    pub max_running: Option<u32>,
}

impl ModelArgs {
    /// These arguments for the model `name`, if one is named in front of them.
    pub fn named(&self, name: Option<&str>) -> Self {
        let mut named = self.clone();
        if let Some(name) = name {
            named.weights.model = Some(name.to_owned());
            named.environment.remove("model");
        }
        named
    }
}

// The model of a command below `inspect`.
#[derive(Args, Clone, Debug, Default)]
pub struct NamedArgs {
    /// The model: the same as --model.
    #[arg(value_name = "MODEL")]
    pub name: Option<String>,
}

/// A length in positions; 0 for -1, which is the model's own in vLLM.
fn length(text: &str) -> Result<u32, String> {
    match text {
        "-1" => Ok(0),
        _ => text.parse().map_err(|_| {
            format!("expected a number of positions up to {}, or -1 for the model's own", u32::MAX)
        }),
    }
}

/// `seed` of a request.
type Seed = Int<{ i64::MIN }, { i64::MAX }>;

/// A value as the field of a request has it, with the range of the field.
///
/// # Errors
/// No number, or one that the API refuses; in the API's words.
fn field<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let number = text.parse::<i64>().map(Value::from);
    let number = number.or_else(|_| text.parse::<f64>().map(Value::from));
    let number = number.ok().filter(|number| !number.is_null());
    let number = number.ok_or("must be a number")?;
    serde_json::from_value(number).map_err(|error| error.to_string())
}

// Length and sampling of an answer, with the ranges of the API's fields.
#[derive(Args, Clone, Copy, Debug)]
pub struct SamplingArgs {
    /// Generation budget in tokens; default: the rest of the context, at most 1,024, or 256 if
    /// the decoder reads a canvas of that length as a whole.
    #[arg(long, value_parser = field::<Count<1>>)]
    pub max_tokens: Option<Count<1>>,
    /// Seed of the sampling noise, a 64-bit integer.
    #[arg(long, default_value = "0", value_parser = field::<Seed>, allow_negative_numbers = true)]
    pub seed: Seed,
    /// Sampling temperature, 0 to 2; 0 = greedy.
    #[arg(long, default_value = "0", value_parser = field::<Temperature>, allow_negative_numbers = true)]
    pub temperature: Temperature,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The model: the same as --model, which is given before a prompt alone.
    #[arg(value_name = "MODEL")]
    pub name: Option<String>,
    /// A prompt to answer once; default: a chat on a terminal, else standard input.
    pub prompt: Option<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// System prompt of the chat.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
}

#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// The prompt; default: standard input.
    pub prompt: Option<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Do not apply the chat template.
    #[arg(long)]
    pub raw: bool,
    /// Print every step and the lane tree of the answer.
    #[arg(long)]
    pub trace: bool,
    /// Print the cost of the answer.
    #[arg(long)]
    pub stats: bool,
}

#[derive(Args, Debug)]
pub struct CheckConfigArgs {
    /// The files; later ones override earlier ones.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}
