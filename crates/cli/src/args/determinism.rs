//! Arguments of `inspect determinism`.

use clap::Args;

use super::{NamedArgs, Secret};

#[derive(Args, Clone, Debug)]
pub struct DeterminismArgs {
    #[command(flatten)]
    pub model: NamedArgs,
    /// Address of a running server with OpenAI's API, such as `http://127.0.0.1:8000`; default: the
    /// configured model is served in this process.
    #[arg(long, value_name = "URL")]
    pub address: Option<String>,
    /// API key of that server.
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub key: Option<Secret>,
    /// Name of the model in requests; default: the first that the server lists.
    #[arg(long, value_name = "NAME")]
    pub request_model: Option<String>,
    /// Random requests that are answered beside the compared ones.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub neighbours: u32,
    /// Compared requests at temperature 0, and as many at temperature 1 with a seed.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub requests: u32,
    /// Maximum tokens of an answer.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_tokens: u32,
    /// Seconds after which the check is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub time: u64,
}
