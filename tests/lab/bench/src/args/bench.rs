//! Arguments of `asynclane-lab bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use cli::args::ModelArgs;

/// The target of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum BenchTarget {
    /// The scheduler alone: an engine over a simulated forward pass with almost no cost.
    Sim,
    /// An engine in this process, without HTTP.
    Engine,
    /// A server on the loopback interface, or the one at `--url`, over HTTP.
    Http,
}

impl std::fmt::Display for BenchTarget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Sim => "sim",
            Self::Engine => "engine",
            Self::Http => "http",
        })
    }
}

/// The source of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Candidates {
    /// The model.
    Model,
    /// A simulated model beside the real forward pass: two to four tokens per step, whatever the
    /// weights.
    Sim,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Decoders to compare, separated by blanks or semicolons: a preset, or settings as for
    /// `--decoder`. The others are compared with the first. `all` stands for vanilla, every other
    /// preset, every commit rule on lanes and on blocks, the other schedules, the ablations and a range
    /// of thresholds. `MODEL:` in front selects another model, such as `demo-wedlm:wedlm`.
    #[arg(
        long,
        default_value = "vanilla fast_dllm_dual_published fast_dllm_dual asynclane_paper asynclane balanced"
    )]
    pub decoders: String,
    /// Problem families, separated by commas: sums, snippets, lists, calls. `all` stands for the first
    /// three.
    #[arg(long, default_value = "sums")]
    pub task: String,
    /// Held-out problems per family.
    #[arg(long, default_value_t = 300)]
    pub problems: usize,
    /// Number of rounds; the problems are split among them, decoders take turns within a round, and
    /// ratios are medians over rounds.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Targets to compare, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "engine")]
    pub target: Vec<BenchTarget>,
    /// A running server, `http://HOST:PORT`, for `--target http`.
    #[arg(long)]
    pub url: Option<String>,
    /// Random weights of this size instead of the model's, to measure speed alone: demo, llada-300m or
    /// llada-8b.
    #[arg(long)]
    pub geometry: Option<String>,
    /// Source of candidates; with random weights only `sim` gives realistic steps.
    #[arg(long, value_enum, default_value = "model")]
    pub candidates: Candidates,
    /// Generation budgets in tokens, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "256")]
    pub max_tokens: Vec<u32>,
    /// Closed loop: numbers of sequences in flight, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub concurrency: Vec<usize>,
    /// Open loop: requests per second with Poisson arrivals, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with = "concurrency",
        allow_negative_numbers = true
    )]
    pub rate: Vec<f64>,
    /// Seed of the problem generator.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Hide a middle sentence of every reference answer and let the decoders write it, without the
    /// text that follows (plain completion) and with it as the suffix (infilling). The budget is the
    /// sentence's length; `--max-tokens` is ignored.
    #[arg(long)]
    pub infill: bool,
    /// Write the result to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Run nothing; show the result in a file of `--json`.
    #[arg(long, value_name = "FILE", conflicts_with = "infill")]
    pub from: Option<PathBuf>,
}
