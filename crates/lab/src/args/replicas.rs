//! Arguments of `asynclane-lab replicas`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Simulated replicas: the real engine, a simulated executor, virtual time.
#[derive(Args, Clone, Debug)]
pub struct ReplicasArgs {
    #[command(subcommand)]
    pub study: Study,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Study {
    /// Conversations over several replicas, by routing policy: hit rate, tokens per second.
    Routing(RoutingArgs),
    /// A day of requests under the rules of the autoscaler: replicas, waiting times.
    Day(DayArgs),
}

/// A model on a device: what the time of a step is computed from.
#[derive(Args, Clone, Copy, Debug)]
pub struct DeviceArgs {
    /// Gigabytes per second that the device reads. Default: an H100's data sheet.
    #[arg(long, default_value_t = 3350.0, value_name = "GB/S")]
    pub bandwidth: f64,
    /// Tera-operations per second on dense bf16 matrices. Default: an H100's data sheet.
    #[arg(long, default_value_t = 989.0)]
    pub tflops: f64,
    /// Share of the bandwidth that a step reaches.
    #[arg(long, default_value_t = 0.8)]
    pub bandwidth_share: f64,
    /// Share of the operations per second that a step reaches.
    #[arg(long, default_value_t = 0.5)]
    pub flops_share: f64,
    /// Milliseconds of a step beside the forward pass.
    #[arg(long, default_value_t = 0.5, value_name = "MS")]
    pub overhead: f64,
    /// Billions of parameters that a row passes through, in bf16. Default: WeDLM-8B.
    #[arg(long, default_value_t = 8.19)]
    pub parameters: f64,
    /// KiB of keys and values of a position. Default: WeDLM-8B in bf16.
    #[arg(long, default_value_t = 144.0, value_name = "KIB")]
    pub kv_position: f64,
}

/// The settings of every replica's engine. Defaults: `config/wedlm-8b.toml`.
#[derive(Args, Clone, Copy, Debug)]
pub struct EngineArgs {
    /// Most sequences of a step.
    #[arg(long, default_value_t = 16)]
    pub max_running: u32,
    /// Most sequences that wait in a replica.
    #[arg(long, default_value_t = 128)]
    pub max_waiting: u32,
    /// Most rows of a step.
    #[arg(long, default_value_t = 1024)]
    pub row_budget: u32,
    /// GiB of KV pages.
    #[arg(long, default_value_t = 8.0, value_name = "GIB")]
    pub kv_memory: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The replicas in turn.
    RoundRobin,
    /// The replica with the fewest requests in flight.
    LeastLoad,
    /// The replica that has seen the longest part of the prompt, unless it is far busier than
    /// others.
    PrefixAware,
}

#[derive(Args, Clone, Debug)]
pub struct RoutingArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Numbers of replicas, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub replicas: Vec<u32>,
    /// Users per replica; each has one conversation at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub users: u32,
    /// System prompts; a conversation begins with one of them.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub systems: u32,
    /// Tokens of a system prompt.
    #[arg(long, default_value_t = 1500)]
    pub system_tokens: u32,
    /// Turns of a conversation. The prompt of a turn holds all earlier turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Tokens of an answer. A user's message has half as many to twice as many.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    pub answer_tokens: u32,
    /// Mean seconds between an answer and the next turn.
    #[arg(long, default_value_t = 2.0)]
    pub think: f64,
    /// Simulated seconds that are counted.
    #[arg(long, default_value_t = 120)]
    pub seconds: u32,
    /// Simulated seconds before them.
    #[arg(long, default_value_t = 60)]
    pub warm_up: u32,
    /// Seed of prompts, lengths and pauses.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct DayArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// What the operator sets, separated by commas: `fixed:N` replicas; or an average per replica of
    /// `load:N` running and waiting sequences, `waiting:N` waiting ones, or `kv:SHARE` of the KV
    /// pages.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fixed:2,fixed:8,load:6,load:11,load:16,waiting:2,kv:0.7"
    )]
    pub settings: Vec<String>,
    /// Fewest replicas of the autoscaler.
    #[arg(long, default_value_t = 2)]
    pub min_replicas: u32,
    /// Most replicas of the autoscaler.
    #[arg(long, default_value_t = 8)]
    pub max_replicas: u32,
    /// Average fill of a step per replica, above which replicas are added whatever the setting.
    #[arg(long, default_value_t = 0.85)]
    pub step_fill: f64,
    /// Seconds until a new replica answers requests.
    #[arg(long, default_value_t = 90)]
    pub start_seconds: u32,
    /// Requests per second at the busiest hour, without the burst.
    #[arg(long, default_value_t = 10.0)]
    pub peak: f64,
    /// Hours of the day that are simulated, from the first.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=24))]
    pub hours: u32,
    /// Mean tokens of a prompt. Each has half to one and a half times as many.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub prompt_tokens: u32,
    /// Tokens of an answer.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub answer_tokens: u32,
    /// Seed of arrivals and prompts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
