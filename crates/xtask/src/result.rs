//! The result files of `asynclane-lab bench`, as far as documents show them and comparisons need them.

use serde::Deserialize;

/// A result file.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Report {
    /// Of several problem sets.
    Several(Several),
    /// Of one.
    Decoders(Decoders),
    /// Of infilling.
    Infill(Infill),
    /// Of a server beside other code.
    Peers(Peers),
    /// Of forward passes alone.
    Forward(Forward),
    /// Of routers over replicas.
    Routers(Routers),
}

/// How a result was made.
#[derive(Debug, Deserialize)]
pub struct Setup {
    /// The command.
    pub command: String,
    /// Processor, threads, what multiplies.
    pub machine: String,
    /// Problems per set.
    pub problems: u64,
    /// Generation budget.
    pub max_tokens: OneOrMore,
    /// Sequences in flight, of a closed loop.
    pub concurrency: Option<OneOrMore>,
    /// Requests per second, of an open loop.
    pub rate: Option<OneOrMore>,
    /// Accuracies mean nothing.
    #[serde(default)]
    pub ungraded: bool,
}

/// A number, or one per row.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// The same for all rows.
    One(f64),
    /// What rows differ in.
    More(Vec<f64>),
}

/// Decoders side by side.
#[derive(Debug, Deserialize)]
pub struct Decoders {
    /// How it was made.
    #[serde(flatten)]
    pub setup: Setup,
    /// The rows.
    #[serde(flatten)]
    pub task: Task,
}

/// Decoders side by side on several problem sets; all lists of decoders have the same order.
#[derive(Debug, Deserialize)]
pub struct Several {
    /// How it was made.
    #[serde(flatten)]
    pub setup: Setup,
    /// The rows by problem set.
    pub tasks: Vec<Task>,
    /// The rows over all sets.
    pub overall: Vec<Overall>,
    /// The presets that follow.
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

/// One row.
#[derive(Debug, Deserialize)]
pub struct Entry {
    /// The decoder, and what differs between rows.
    pub name: String,
    /// Right by the end, in percent.
    pub end: f64,
    /// Right in the whole text, in percent.
    pub strict: f64,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Output tokens per second.
    pub tps: f64,
    /// TPS over the first row's.
    pub ratio: f64,
    /// How long requests waited.
    pub latency: Option<Latency>,
    /// Share of wall time outside the model, in percent.
    pub overhead: Option<f64>,
    /// Rows planned and applied per second outside the model.
    pub scheduled_rows_per_second: Option<f64>,
    /// Resident memory after each round, in MiB.
    #[serde(default)]
    pub resident_mib: Vec<f64>,
    /// What idle streams cost of it.
    pub idle_streams_mib: Option<f64>,
}

/// 50th, 95th and 99th percentiles.
#[derive(Debug, Deserialize)]
pub struct Latency {
    /// To the first token.
    pub ttft_ms: [f64; 3],
    /// Per token behind the first.
    pub tpot_ms: [f64; 3],
    /// To the end.
    pub e2e_ms: [f64; 3],
}

/// One row over all problem sets.
#[derive(Debug, Deserialize)]
pub struct Overall {
    /// As in the sets.
    pub name: String,
    /// Mean, in percent.
    pub end: f64,
    /// Mean, in percent.
    pub strict: f64,
    /// Mean.
    pub nfe_per_token: f64,
    /// Mean.
    pub positions_per_token: f64,
    /// Mean, in percent.
    pub agreement: Option<f64>,
    /// Geometric mean.
    pub ratio: f64,
    /// None is better in accuracy and speed.
    pub pareto: bool,
}

/// A preset that the rows lead to.
#[derive(Debug, Deserialize)]
pub struct Derived {
    /// Its name.
    pub preset: String,
    /// Points that it may lose.
    pub within: f64,
    /// The fastest decoder that loses no more.
    pub decoder: String,
    /// Its ratio.
    pub ratio: f64,
}

/// Decoders that fill a gap, blind to what follows and with it as the suffix.
#[derive(Debug, Deserialize)]
pub struct Infill {
    /// The command.
    pub command: String,
    /// Processor, threads, what multiplies.
    pub machine: String,
    /// Problem family.
    pub task: String,
    /// Problems.
    pub problems: u64,
    /// Mean length of the gaps.
    pub hidden_tokens: f64,
    /// The rows.
    pub infill: Vec<InfillEntry>,
}

/// One row of infilling, accuracies in percent.
#[derive(Debug, Deserialize)]
pub struct InfillEntry {
    /// The decoder.
    pub name: String,
    /// Blind: the whole answer is valid.
    pub plain_strict: f64,
    /// Blind: the very sentence.
    pub plain_exact: f64,
    /// With the suffix: the whole answer is valid.
    pub infill_strict: f64,
    /// With the suffix: the very sentence.
    pub infill_exact: f64,
    /// Forward passes per output token with the suffix.
    pub infill_nfe_per_token: f64,
}

/// A server beside other code, as `tests/bench/peers` measures it.
#[derive(Debug, Deserialize)]
pub struct Peers {
    /// The command.
    pub command: String,
    /// Processor, threads, what multiplies on our side.
    pub machine: String,
    /// Version of PyTorch.
    pub torch: String,
    /// Problem family.
    pub task: String,
    /// Problems.
    pub problems: u64,
    /// Generation budget.
    pub max_tokens: u64,
    /// The rows, theirs first.
    pub peers: Vec<Peer>,
}

/// One side.
#[derive(Debug, Deserialize)]
pub struct Peer {
    /// Whose, and how many in flight.
    pub name: String,
    /// Right by the end, in percent.
    pub end: f64,
    /// Right in the whole text, in percent.
    pub strict: f64,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Output tokens per second.
    pub tps: f64,
    /// TPS over the first row's.
    pub ratio: f64,
}

/// Forward passes with random weights, as `--example forward` and `tests/bench/peers` measure
/// them.
#[derive(Debug, Deserialize)]
pub struct Forward {
    /// The command.
    pub command: String,
    /// Processor, threads, what multiplies.
    pub machine: String,
    /// Whose sizes.
    pub geometry: String,
    /// One sequence.
    pub forward: Vec<Passes>,
    /// Sequences with a context.
    #[serde(default)]
    pub profiles: Vec<Profile>,
}

/// Forward passes of one size.
#[derive(Debug, Deserialize)]
pub struct Passes {
    /// Whose, where there are several sides.
    pub name: Option<String>,
    /// Rows.
    pub rows: u64,
    /// Median time of a pass.
    pub ms: f64,
    /// Share of the machine's peak in matrix products, in percent.
    pub products_of_peak: Option<f64>,
    /// The same over the whole pass.
    pub forward_of_peak: Option<f64>,
    /// The first side's time over this one's.
    pub ratio: Option<f64>,
}

/// Where a pass's time goes.
#[derive(Debug, Deserialize)]
pub struct Profile {
    /// Sequences.
    pub sequences: u64,
    /// Size and speed; rows are those of each sequence.
    #[serde(flatten)]
    pub passes: Passes,
    /// Percent of the wall time in matrix products and attention.
    pub work: f64,
    /// Percent of the wall time by part.
    pub parts: Vec<(String, f64)>,
    /// Threads busy on average.
    pub threads_busy: Option<f64>,
    /// Percent of their time that is the system's.
    pub system: Option<f64>,
}

/// Routers over two replicas, as `tests/routers/run` measures them.
#[derive(Debug, Deserialize)]
pub struct Routers {
    /// The command.
    pub command: String,
    /// Processor, threads, what multiplies.
    pub machine: String,
    /// Requests of a throughput.
    pub requests: u64,
    /// Clients that ask them.
    pub clients: u64,
    /// The rows: no router, then each one.
    pub routers: Vec<Router>,
}

/// One router, or none; a list has a value per round.
#[derive(Debug, Deserialize)]
pub struct Router {
    /// Its name and version.
    pub name: String,
    /// Requests per second with two replicas.
    pub requests_per_second: Vec<f64>,
    /// The same over those with one replica.
    pub two_over_one: Vec<f64>,
    /// The same over those of clients that ask the replicas themselves.
    #[serde(default)]
    pub of_direct: Vec<f64>,
    /// Time that a plain answer takes longer than from the replica itself.
    #[serde(default)]
    pub plain_added_ms: Vec<f64>,
    /// Time of a plain answer over the replica's own.
    #[serde(default)]
    pub plain_ratio: Vec<f64>,
    /// The same for a streamed answer, to its end.
    #[serde(default)]
    pub streamed_added_ms: Vec<f64>,
    /// The same for an answer of one token.
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
    /// The problem sets; none of infilling.
    pub fn tasks(&self) -> &[Task] {
        match self {
            Self::Several(report) => &report.tasks,
            Self::Decoders(report) => std::slice::from_ref(&report.task),
            Self::Infill(_) | Self::Peers(_) | Self::Forward(_) | Self::Routers(_) => &[],
        }
    }
}
