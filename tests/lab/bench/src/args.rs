//! Command-line arguments of the laboratory.

mod bench;

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::args::{ModelArgs, by_environment};

use problems::{Split, Task};

pub use bench::{BenchArgs, BenchTarget, Candidates};

/// The laboratory of AsyncLane: benchmark, training of filters, problems and grades.
#[derive(Debug, Parser)]
#[command(name = "asynclane-lab", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare decoders on the demo problems: accuracy, forwards, positions, speed.
    Bench(Box<BenchArgs>),
    /// Train the filter of the commit rule `learned_filter` for a model (Learn2PD).
    TrainFilter(Box<TrainFilterArgs>),
    /// Print problems as JSON lines, `{"task", "prompt", "answer"}`.
    Problems(ProblemsArgs),
    /// Grade JSON lines `{"prompt", "output"}` from standard input; print one
    /// `{"task", "end", "strict"}` per line.
    Grade,
    /// Ask a server for decisions about held-out sums: accuracy, calibration, agreement of the manners.
    Decide(DecideArgs),
}

impl Cli {
    /// Reads the command line and the environment.
    ///
    /// # Errors
    /// The report of clap, which may be an answer (`--help`).
    pub fn read() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let model = match &mut cli.command {
            Command::Bench(args) => &mut args.model,
            Command::TrainFilter(args) => &mut args.model,
            Command::Problems(_) | Command::Grade | Command::Decide(_) => return Ok(cli),
        };
        model.environment = by_environment(&matches);
        Ok(cli)
    }
}

#[derive(Args, Debug)]
pub struct TrainFilterArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The safetensors file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Text file with one prompt per line, instead of the demo's problems.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "problems"])]
    pub prompts: Option<PathBuf>,
    /// Families of training problems, separated by commas: sums, snippets, lists, calls. `all`
    /// stands for the first three.
    #[arg(long, default_value = "all")]
    pub task: String,
    /// Problems per family, at least 10.
    #[arg(long, default_value_t = 300)]
    pub problems: usize,
    /// Generation budget in tokens.
    #[arg(long, default_value_t = 256)]
    pub max_tokens: u32,
    /// Block length of the filter.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub block_length: u32,
    /// Hidden units of the filter.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub hidden: u32,
    /// Passes over all examples.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Learning rate of AdamW.
    #[arg(long, default_value_t = 0.003)]
    pub learning_rate: f32,
    /// Sequences in flight while the answers are generated.
    #[arg(long, default_value_t = 1)]
    pub concurrency: usize,
    /// Seed of the problem generator and of the initial weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug)]
pub struct DecideArgs {
    /// A running server, `http://HOST:PORT`.
    #[arg(long)]
    pub url: String,
    /// Held-out problems.
    #[arg(long, default_value_t = 300)]
    pub problems: usize,
    /// Numbers of orders of the options, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    pub orders: Vec<u32>,
    /// Seed of the problem generator.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct ProblemsArgs {
    /// A family: sums, snippets, lists or calls. Without it, drills: short equations that belong to no
    /// family.
    #[arg(long)]
    pub task: Option<Task>,
    /// Seed of the problem generator.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Number of problems.
    #[arg(long, default_value_t = 10)]
    pub count: usize,
    /// `train` or `eval` (held out); drills have no split.
    #[arg(long, default_value = "train")]
    pub split: Split,
}
