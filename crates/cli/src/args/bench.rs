//! Arguments of `asynclane bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ModelArgs;

/// What a comparison asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum BenchTarget {
    /// The scheduler alone: an engine over a simulated forward pass that costs next to nothing.
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

/// Who decides what is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Candidates {
    /// The model.
    Model,
    /// A simulated model beside the real forward pass: two to four tokens a step, whatever the
    /// weights are.
    Sim,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Decoders side by side, separated by blanks or semicolons: a preset, or settings as for
    /// `--decoder`. The first is the one the others are compared with. `all` stands for vanilla,
    /// every other preset, every commit rule on the lanes and on blocks, the other schedules, the
    /// ablations and a row of thresholds. `MODEL:` in front of one asks another model, such as
    /// `demo-wedlm:wedlm`.
    #[arg(
        long,
        default_value = "vanilla fast_dllm_dual_published fast_dllm_dual asynclane_paper asynclane balanced"
    )]
    pub decoders: String,
    /// Problem families, separated by commas: sums, snippets, lists, or `all`.
    #[arg(long, default_value = "sums")]
    pub task: String,
    /// Held-out problems per family.
    #[arg(long, default_value_t = 300)]
    pub problems: usize,
    /// Rounds that the problems are split into; decoders take turns within a round, and ratios
    /// are medians over rounds.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// What is asked; several, separated by commas, side by side.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "engine")]
    pub target: Vec<BenchTarget>,
    /// A server that runs already, `http://HOST:PORT`, for `--target http`.
    #[arg(long)]
    pub url: Option<String>,
    /// Random weights of this size instead of the model's, so that speed alone is measured: demo,
    /// llada-300m or llada-8b.
    #[arg(long)]
    pub geometry: Option<String>,
    /// Who decides what is committed; with random weights only `sim` shows realistic steps.
    #[arg(long, value_enum, default_value = "model")]
    pub candidates: Candidates,
    /// Generation budgets in tokens, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "256")]
    pub max_tokens: Vec<u32>,
    /// Closed loop: sequences in flight at once; several, separated by commas, side by side.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub concurrency: Vec<usize>,
    /// Open loop: requests per second, arriving at random (Poisson); several, separated by commas,
    /// side by side.
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with = "concurrency",
        allow_negative_numbers = true
    )]
    pub rate: Vec<f64>,
    /// Beside every row the same with so many open streams that wait in vain, for `--target http`.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub idle_streams: usize,
    /// Seed of the problem generator.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Hide a middle sentence of every reference answer and let the decoders write it, once
    /// blind to what follows (plain completion) and once with it as the suffix (infilling). The
    /// budget is the sentence's length; `--max-tokens` is not read.
    #[arg(long)]
    pub infill: bool,
    /// Where to write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to draw accuracy (strict) against speed, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "infill")]
    pub plot: Option<PathBuf>,
    /// Run nothing: show, and draw, the result in a file that `--json` wrote.
    #[arg(long, value_name = "FILE", conflicts_with = "infill")]
    pub from: Option<PathBuf>,
}
