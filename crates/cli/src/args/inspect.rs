//! Arguments of `inspect`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DeterminismArgs, ModelArgs, NamedArgs};

#[derive(Args, Debug)]
pub struct InspectArgs {
    #[command(subcommand)]
    pub what: Option<InspectCommand>,
    /// The model: the same as --model.
    #[arg(value_name = "MODEL")]
    pub name: Option<String>,
    #[command(flatten)]
    pub model: ModelArgs,
}

impl InspectArgs {
    /// The arguments for the model that is named in front of the command or behind it, if one is.
    pub fn named(&self) -> ModelArgs {
        let behind = match &self.what {
            Some(InspectCommand::Model(model)) => model.name.as_deref(),
            Some(InspectCommand::Capacity(options)) => options.model.name.as_deref(),
            Some(InspectCommand::Logits { model, .. }) => model.name.as_deref(),
            Some(InspectCommand::Determinism(options)) => options.model.name.as_deref(),
            _ => None,
        };
        self.model.named(behind.or(self.name.as_deref()))
    }
}

/// The time of a step on a GPU.
#[derive(Clone, Debug, Args)]
pub struct StepsArgs {
    /// Print the time to read the weights, keys and values of a step once, in bf16, int8, int8w and int4. On a machine
    /// with a CUDA device the step runs with random weights, and its measured time stands beside; not
    /// with `--device cpu`.
    #[arg(long)]
    pub steps: bool,
    /// Sizes of the model: demo, llada-300m, llada-8b, llada2-mini, diffusion-gemma or qwen3-30b-a3b.
    #[arg(long, default_value = "llada-8b", requires = "steps")]
    pub geometry: String,
    /// Dtypes of the steps, separated by commas: bf16, int8, int8w, int4 (default all).
    #[arg(long, value_delimiter = ',', requires = "steps")]
    pub dtypes: Vec<String>,
    /// Rows of the steps, separated by commas, in sequences of 32.
    #[arg(long, value_delimiter = ',', default_value = "32,64,128,256,512,1024", requires = "steps",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub rows: Vec<u32>,
    /// Slots that each row sees, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1024", requires = "steps",
        value_parser = clap::value_parser!(u32).range(32..=4096))]
    pub slots: Vec<u32>,
    /// Write the steps to this file as JSON.
    #[arg(long, value_name = "FILE", requires = "steps")]
    pub json: Option<PathBuf>,
    /// Time every launch of every product on the CUDA device too, for the file.
    #[arg(long, requires = "json")]
    pub launches: bool,
}

#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    /// Print what a checkpoint holds (default).
    Model(NamedArgs),
    /// Estimate how many sequences fit and the shortest time of a step.
    Capacity(CapacityArgs),
    /// Print the processor, its threads, the instructions for each dtype, and the CUDA device.
    Device {
        /// Compare this server's kernels on the CPU with candle, and those on the CUDA device with the
        /// CPU. Every comparison is printed when it is made.
        #[arg(long)]
        selftest: bool,
        #[command(flatten)]
        steps: StepsArgs,
    },
    /// Print presets, schedules, commit rules and caches with every setting.
    Decoders {
        /// A preset, a part, or `general` for the settings of every decoder.
        name: Option<String>,
    },
    /// Write the logits of one full forward pass to a safetensors file.
    Logits {
        #[command(flatten)]
        model: NamedArgs,
        /// Token ids, separated by commas.
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
        /// The file to write: one f32 tensor `logits` of shape [tokens, vocab].
        #[arg(long)]
        out: PathBuf,
    },
    /// Compare answers to the same requests alone and among random ones, of any server with OpenAI's API.
    Determinism(DeterminismArgs),
    /// Ask a running server for its health (exit code 0 or 69).
    Health(HealthArgs),
}

#[derive(Args, Clone, Debug, Default)]
pub struct HealthArgs {
    /// Address of the server: `HOST:PORT`, a port, or an `http://` URL; default: where `serve` listens with
    /// the same configuration.
    #[arg(long)]
    pub address: Option<String>,
    // As `serve` has it, for the variable.
    #[arg(long, hide = true, env = "ASYNCLANE_LISTEN")]
    pub listen: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct CapacityArgs {
    #[command(flatten)]
    pub model: NamedArgs,
    /// A `config.json` in place of the configured model: the estimate needs no weights.
    #[arg(long, value_name = "FILE")]
    pub config_json: Option<PathBuf>,
    /// Positions of a sequence, prompt and canvas, halfway through its answer; default: 1536, or the model's
    /// context if it is shorter.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// Bytes per number in K/V; default: those of `--kv-dtype` with scales, or 2 for bf16.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub kv_bytes: Option<u8>,
    /// Your device as `MEMORY,BANDWIDTH,FLOPS`: memory in GB, bandwidth in GB/s, dense bf16 arithmetic
    /// in TFLOP/s. Default: six common GPUs.
    #[arg(long = "on", value_name = "NUMBERS", value_delimiter = ',')]
    pub machine: Vec<f64>,
}
