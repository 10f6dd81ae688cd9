//! The result files of `asynclane-lab bench`: the fields that documents and comparisons read.

mod diffusion;
mod ladder;
mod serving;
mod steps;

use serde::Deserialize;

pub use diffusion::{Diffusion, DiffusionRow};
pub use ladder::{Ladder, LadderRow};
pub use serving::{Serving, ServingRow};
pub use steps::{StepRow, Steps};

/// A result file.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Report {
    /// Decoders on several problem sets.
    Several(Several),
    /// Decoders on one problem set.
    Decoders(Decoders),
    /// Infilling.
    Infill(Infill),
    /// This server beside other implementations.
    Peers(Peers),
    /// Forward passes without decoding.
    Forward(Forward),
    /// Steps in long contexts.
    Contexts(Contexts),
    /// Forward passes by their rows, beside other implementations.
    Ladder(Ladder),
    /// Steps on a GPU beside PyTorch's.
    Steps(Steps),
    /// Two servers on one file.
    Serving(Serving),
    /// A masked diffusion model on one file.
    Diffusion(Diffusion),
    /// Routers in front of replicas.
    Routers(Routers),
}

/// How a result was measured.
#[derive(Debug, Deserialize)]
pub struct Setup {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// Problems per set.
    pub problems: u64,
    /// Generation budget.
    pub max_tokens: OneOrMore,
    /// Sequences in flight of a closed loop.
    pub concurrency: Option<OneOrMore>,
    /// Requests per second of an open loop.
    pub rate: Option<OneOrMore>,
    /// True if the answers were not graded.
    #[serde(default)]
    pub ungraded: bool,
}

/// A number for all rows, or one per row.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// The same for all rows.
    One(f64),
    /// Each row has its own.
    More(Vec<f64>),
}

/// Decoders on one problem set.
#[derive(Debug, Deserialize)]
pub struct Decoders {
    /// How it was measured.
    #[serde(flatten)]
    pub setup: Setup,
    /// The rows.
    #[serde(flatten)]
    pub task: Task,
}

/// Decoders on several problem sets. All lists of decoders have the same order.
#[derive(Debug, Deserialize)]
pub struct Several {
    /// How it was measured.
    #[serde(flatten)]
    pub setup: Setup,
    /// The rows of each problem set.
    pub tasks: Vec<Task>,
    /// The rows over all sets.
    pub overall: Vec<Overall>,
    /// The presets derived from the rows; empty if they have no paired intervals.
    pub derived: Vec<Derived>,
}

/// One problem set.
#[derive(Debug, Deserialize)]
pub struct Task {
    /// Its name.
    pub task: String,
    /// The rows.
    pub decoders: Vec<Entry>,
}

/// The results of one decoder.
#[derive(Debug, Deserialize)]
pub struct Entry {
    /// The decoder, with the settings in which rows differ.
    pub name: String,
    /// Answers with the right end, in percent.
    pub end: f64,
    /// Answers that are right as a whole, in percent.
    pub strict: f64,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Tokens per forward pass that checked the model's own guesses.
    pub accepted_length: Option<f64>,
    /// Output tokens per second.
    pub tps: f64,
    /// TPS divided by that of the first row.
    pub ratio: f64,
    /// Latencies of the requests.
    pub latency: Option<Latency>,
    /// Share of wall time outside the model, in percent.
    pub overhead: Option<f64>,
    /// Rows planned and applied per second outside the model.
    pub scheduled_rows_per_second: Option<f64>,
    /// Resident memory after each round, in MiB.
    #[serde(default)]
    pub resident_mib: Vec<f64>,
    /// Share of it that idle streams take.
    pub idle_streams_mib: Option<f64>,
    /// The row beside the first one.
    pub paired: Option<Paired>,
}

/// A row beside the first one, problem by problem.
#[derive(Debug, Deserialize)]
pub struct Paired {
    /// Problems that only this row solves.
    pub won: u64,
    /// Problems that only the first row solves.
    pub lost: u64,
    /// 95 % interval of the difference of the accuracies in points.
    pub interval: [f64; 2],
}

/// 50th, 95th and 99th percentiles.
#[derive(Debug, Deserialize)]
pub struct Latency {
    /// Time to the first token.
    pub ttft_ms: [f64; 3],
    /// Time per token after the first.
    pub tpot_ms: [f64; 3],
    /// Time to the end.
    pub e2e_ms: [f64; 3],
}

/// The results of one decoder over all problem sets.
#[derive(Debug, Deserialize)]
pub struct Overall {
    /// The decoder, as in the sets.
    pub name: String,
    /// Mean of the answers with the right end, in percent.
    pub end: f64,
    /// Mean of the answers that are right as a whole, in percent.
    pub strict: f64,
    /// Mean of the forward passes per output token.
    pub nfe_per_token: f64,
    /// Mean of the rows computed per output token.
    pub positions_per_token: f64,
    /// Mean share of answers equal to the first row's, in percent.
    pub agreement: Option<f64>,
    /// Geometric mean of the speed ratios.
    pub ratio: f64,
    /// On the Pareto front: no row has both higher accuracy and higher speed.
    pub pareto: bool,
}

/// A preset derived from the rows.
#[derive(Debug, Deserialize)]
pub struct Derived {
    /// Its name.
    pub preset: String,
    /// Points of accuracy that it may lose on every set.
    pub within: f64,
    /// Whether the paired interval holds them, and not the measured difference alone.
    #[serde(default)]
    pub surely: bool,
    /// The cheapest decoder that loses no more.
    pub decoder: String,
}

/// Decoders that fill a gap, without and with the text that follows it as the suffix.
#[derive(Debug, Deserialize)]
pub struct Infill {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// Problem family.
    pub task: String,
    /// Number of problems.
    pub problems: u64,
    /// Mean tokens of a gap.
    pub hidden_tokens: f64,
    /// The rows.
    pub infill: Vec<InfillEntry>,
}

/// One row of infilling, accuracies in percent.
#[derive(Debug, Deserialize)]
pub struct InfillEntry {
    /// The decoder.
    pub name: String,
    /// Without the suffix: answers that are right as a whole.
    pub plain_strict: f64,
    /// Without the suffix: gaps filled with the original sentence.
    pub plain_exact: f64,
    /// With the suffix: answers that are right as a whole.
    pub infill_strict: f64,
    /// With the suffix: gaps filled with the original sentence.
    pub infill_exact: f64,
    /// Forward passes per output token with the suffix.
    pub infill_nfe_per_token: f64,
}

/// This server beside another implementation, as `tests/lab/records/peers` measures both.
#[derive(Debug, Deserialize)]
pub struct Peers {
    /// The command.
    pub command: String,
    /// Processor, threads and the matrix kernels of this server.
    pub machine: String,
    /// Version of PyTorch.
    pub torch: String,
    /// Problem family.
    pub task: String,
    /// Number of problems.
    pub problems: u64,
    /// Generation budget.
    pub max_tokens: u64,
    /// The rows, the other implementation first.
    pub peers: Vec<Peer>,
}

/// The results of one implementation.
#[derive(Debug, Deserialize)]
pub struct Peer {
    /// The implementation, and its requests in flight.
    pub name: String,
    /// Answers with the right end, in percent.
    pub end: f64,
    /// Answers that are right as a whole, in percent.
    pub strict: f64,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Output tokens per second.
    pub tps: f64,
    /// TPS divided by that of the first row.
    pub ratio: f64,
}

/// Forward passes with random weights, as `--example forward` and `tests/lab/records/peers` measure
/// them.
#[derive(Debug, Deserialize)]
pub struct Forward {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// The model whose sizes are used.
    pub geometry: String,
    /// Passes of one sequence.
    pub forward: Vec<Passes>,
    /// Passes of several sequences with a context.
    #[serde(default)]
    pub profiles: Vec<Profile>,
}

/// Forward passes of one size.
#[derive(Debug, Deserialize)]
pub struct Passes {
    /// The implementation, if there are several.
    pub name: Option<String>,
    /// Rows of the pass.
    pub rows: u64,
    /// Median milliseconds of a pass.
    pub ms: f64,
    /// Speed of the matrix products, in percent of the machine's peak.
    pub products_of_peak: Option<f64>,
    /// Speed of the whole pass, in percent of the machine's peak.
    pub forward_of_peak: Option<f64>,
    /// Time of the first row divided by the time of this one.
    pub ratio: Option<f64>,
}

/// The time of a pass by its parts.
#[derive(Debug, Deserialize)]
pub struct Profile {
    /// Number of sequences.
    pub sequences: u64,
    /// Size and speed. Rows are those of one sequence.
    #[serde(flatten)]
    pub passes: Passes,
    /// Wall time in matrix products and attention, in percent.
    pub work: f64,
    /// Wall time by part, in percent.
    pub parts: Vec<(String, f64)>,
    /// Mean number of busy threads.
    pub threads_busy: Option<f64>,
    /// Share of their time spent in the kernel of the system, in percent.
    pub system: Option<f64>,
}

/// Steps whose rows see many slots.
#[derive(Debug, Deserialize)]
pub struct Contexts {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// The model whose sizes are used.
    pub geometry: String,
    /// The steps.
    pub contexts: Vec<LongStep>,
}

/// A step in a long context.
#[derive(Debug, Deserialize)]
pub struct LongStep {
    /// Number format of keys and values.
    pub kv: String,
    /// Slots that each row sees.
    pub slots: u64,
    /// Rows of the step.
    pub rows: u64,
    /// Median milliseconds.
    pub ms: f64,
    /// Bytes of weights and of visible keys and values, in 10^9.
    pub gb: f64,
    /// Milliseconds in which the machine reads them.
    pub least_ms: f64,
    /// `ms` over `least_ms`.
    pub ratio: f64,
    /// Milliseconds in attention.
    pub attention_ms: f64,
    /// Milliseconds in which the machine reads the visible keys and values.
    pub attention_least_ms: f64,
    /// Speed of attention, in percent of the peak of the matrices' dtype.
    pub attention_of_peak: f64,
}

/// Routers in front of two replicas, as `tests/routers/run` measures them.
#[derive(Debug, Deserialize)]
pub struct Routers {
    /// The command.
    pub command: String,
    /// Processor, threads and matrix kernels.
    pub machine: String,
    /// Requests of a measurement of throughput.
    pub requests: u64,
    /// Clients that send them.
    pub clients: u64,
    /// The rows: direct requests first, then each router.
    pub routers: Vec<Router>,
}

/// The results of one router, or of direct requests. A list has one value per round.
#[derive(Debug, Deserialize)]
pub struct Router {
    /// Its name and version.
    pub name: String,
    /// Requests per second with two replicas.
    pub requests_per_second: Vec<f64>,
    /// Requests per second with two replicas divided by those with one.
    pub two_over_one: Vec<f64>,
    /// Requests per second divided by those of direct requests.
    #[serde(default)]
    pub of_direct: Vec<f64>,
    /// Milliseconds that the router adds to an answer.
    #[serde(default)]
    pub plain_added_ms: Vec<f64>,
    /// Time of an answer divided by that of a direct request.
    #[serde(default)]
    pub plain_ratio: Vec<f64>,
    /// Milliseconds that the router adds to a streamed answer, to its end.
    #[serde(default)]
    pub streamed_added_ms: Vec<f64>,
    /// Milliseconds that the router adds to an answer of one token.
    #[serde(default)]
    pub one_token_added_ms: Vec<f64>,
}

impl OneOrMore {
    fn text(&self) -> String {
        match self {
            Self::One(value) => value.to_string(),
            Self::More(values) => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                values.join(", ")
            }
        }
    }
}

impl Setup {
    /// `budget 256, concurrency 1`
    pub fn conditions(&self) -> String {
        let mut text = format!("budget {}", self.max_tokens.text());
        if let Some(concurrency) = &self.concurrency {
            text.push_str(&format!(", concurrency {}", concurrency.text()));
        }
        if let Some(rate) = &self.rate {
            text.push_str(&format!(", {} requests per second", rate.text()));
        }
        text
    }
}

impl Report {
    /// The problem sets; empty for infilling.
    pub fn tasks(&self) -> &[Task] {
        match self {
            Self::Several(report) => &report.tasks,
            Self::Decoders(report) => std::slice::from_ref(&report.task),
            Self::Infill(_) | Self::Peers(_) | Self::Forward(_) => &[],
            Self::Routers(_) => &[],
            Self::Contexts(_)
            | Self::Ladder(_)
            | Self::Steps(_)
            | Self::Serving(_)
            | Self::Diffusion(_) => &[],
        }
    }
}
