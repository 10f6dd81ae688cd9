//! The result of a comparison, and its form as JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use engine::DraftStats;
use serde::{Deserialize, Serialize};

use super::latency::{Latency, Times};
use super::overall::{self, Derived, Overall};
use super::paired::Paired;
use super::row::BenchRow;
use super::tally::Tally;
use cli::exit;

/// Conditions of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The command that wrote it.
    pub command: String,
    /// Processor and thread count.
    pub machine: String,
    /// Held-out problems per task.
    pub problems: usize,
    /// Generation budget.
    pub max_tokens: OneOrMore<u32>,
    /// Sequences in flight; absent in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<OneOrMore<usize>>,
    /// Requests per second of an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<OneOrMore<f64>>,
    /// The answers are not graded: the model has random weights or is simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ungraded: bool,
}

/// One value, or the values that differ between rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// The same for all rows.
    One(T),
    /// Each row has one of these.
    More(Vec<T>),
}

impl<T: Default> Default for OneOrMore<T> {
    fn default() -> Self {
        Self::One(T::default())
    }
}

impl<T: Clone + std::fmt::Display> OneOrMore<T> {
    /// From `values`, which must not be empty.
    pub fn new(values: &[T]) -> Self {
        match values {
            [one] => Self::One(one.clone()),
            more => Self::More(more.to_vec()),
        }
    }

    /// As text, separated by commas.
    pub fn text(&self) -> String {
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
        let budget = self.max_tokens.text();
        let concurrency = self.concurrency.as_ref().map(OneOrMore::text);
        let rate = self.rate.as_ref().map(OneOrMore::text);
        match (concurrency, rate) {
            (Some(concurrency), _) => format!("budget {budget}, concurrency {concurrency}"),
            (None, Some(rate)) => format!("budget {budget}, {rate} requests per second"),
            (None, None) => format!("budget {budget}"),
        }
    }
}

/// One comparison: the same decoders on one or several problem sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its conditions.
    pub setup: Setup,
    /// At least one; all have the same decoders in the same order.
    pub tasks: Vec<TaskReport>,
}

/// One problem set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Problem family.
    pub task: String,
    /// One entry per decoder, the baseline first.
    pub decoders: Vec<Entry>,
}

/// One decoder's row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// As named on the command line.
    pub name: String,
    /// schedule+commit+cache
    pub label: String,
    /// Answers with the right end, in percent.
    pub end: f64,
    /// Answers that are right in the whole text, in percent.
    pub strict: f64,
    /// The whole texts beside the first decoder's; older results lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paired: Option<Paired>,
    /// Answers identical to the first decoder's, in percent; older results lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Tokens per forward pass that checked the model's own guesses; absent without such passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_length: Option<f64>,
    /// Counts of a draft model; absent without drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_model: Option<DraftModel>,
    /// Output tokens.
    pub tokens: u64,
    /// Output tokens per second, median over rounds.
    pub tps: f64,
    /// TPS over the first row's, median over rounds.
    pub ratio: f64,
    /// Share of wall time outside the model, in percent; absent over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<f64>,
    /// Share of wall time in which forward passes are launched, in percent; absent where nothing is
    /// launched. With `overhead`, the host's share of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launching: Option<f64>,
    /// Rows planned and applied per second of wall time outside the model; absent over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_rows_per_second: Option<f64>,
    /// Waiting times of requests; older results lack them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Resident memory of the process after each round, in MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resident_mib: Vec<f64>,
}

/// Counts of a draft model for the answers of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DraftModel {
    /// Its forward passes per output token.
    pub nfe_per_token: f64,
    /// Its rows per output token.
    pub positions_per_token: f64,
    /// Its tokens that the model confirmed, in percent.
    pub accepted: f64,
}

impl DraftModel {
    /// Sums counts over `rounds`.
    fn of(rounds: &[Tally], tokens: f64) -> Option<Self> {
        let sum = |field: fn(&DraftStats) -> u64| {
            rounds.iter().map(|t| field(&t.draft_model)).sum::<u64>() as f64
        };
        let drafted = sum(|stats| stats.drafted.into());
        (drafted > 0.0).then(|| Self {
            nfe_per_token: round(sum(|stats| stats.forwards.into()) / tokens.max(1.0), 3),
            positions_per_token: round(sum(|stats| stats.positions) / tokens.max(1.0), 1),
            accepted: round(100.0 * sum(|stats| stats.verified.into()) / drafted, 1),
        })
    }
}

/// Tokens of a check; `None` without checks.
fn accepted_length(tokens: f64, checks: f64) -> Option<f64> {
    (checks > 0.0).then(|| round(tokens / checks, 2))
}

/// A result file: one task, or several tasks with their means and derived presets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Saved {
    Several {
        #[serde(flatten)]
        setup: Setup,
        tasks: Vec<TaskReport>,
        overall: Vec<Overall>,
        derived: Vec<Derived>,
    },
    One {
        #[serde(flatten)]
        setup: Setup,
        #[serde(flatten)]
        task: TaskReport,
    },
}

impl Entry {
    /// Sums counts over `rounds` and takes medians of speed; `baseline` has the same rounds.
    pub fn new(row: &BenchRow, rounds: &[Tally], baseline: &[Tally]) -> Self {
        let total = |field: fn(&Tally) -> u64| rounds.iter().map(field).sum::<u64>();
        let sum = |field| total(field) as f64;
        let discordant = (total(|t| t.won), total(|t| t.lost));
        let (problems, tokens) = (sum(|t| t.problems).max(1.0), sum(|t| t.tokens));
        let percent = |count: f64| round(100.0 * count / problems, 1);
        let ratios =
            rounds.iter().zip(baseline).map(|(ours, theirs)| ours.tps() / theirs.tps().max(1e-9));
        let wall: f64 = rounds.iter().map(|t| t.wall.as_secs_f64()).sum();
        let execute: Option<Duration> = rounds.iter().map(|t| t.execute).sum();
        let outside = execute.map(|execute| (wall - execute.as_secs_f64()).max(1e-9));
        let begin: Duration = rounds.iter().map(|t| t.begin).sum();
        let launching = round(100.0 * begin.as_secs_f64() / wall.max(1e-9), 2);
        let times: Vec<Times> = rounds.iter().flat_map(|t| &t.times).copied().collect();
        let mib = |bytes: u64| round(bytes as f64 / f64::from(1 << 20), 1);
        Self {
            name: row.name.clone(),
            label: row.decoder.decoding.label.clone(),
            end: percent(sum(|t| t.end)),
            strict: percent(sum(|t| t.strict)),
            paired: Paired::new(discordant.0, discordant.1, total(|t| t.problems)),
            agreement: Some(percent(sum(|t| t.agreed))),
            nfe_per_token: round(sum(|t| t.forwards) / tokens.max(1.0), 3),
            positions_per_token: round(sum(|t| t.positions) / tokens.max(1.0), 1),
            accepted_length: accepted_length(sum(|t| t.checked_tokens), sum(|t| t.checks)),
            draft_model: DraftModel::of(rounds, tokens),
            tokens: tokens as u64,
            tps: round(median(rounds.iter().map(Tally::tps).collect()), 1),
            ratio: round(median(ratios.collect()), 2),
            overhead: outside.map(|outside| round(100.0 * outside / wall.max(1e-9), 2)),
            launching: (launching > 0.0).then_some(launching),
            scheduled_rows_per_second: outside
                .map(|seconds| round(sum(|t| t.positions) / seconds, 0)),
            latency: Latency::of(&times),
            resident_mib: rounds.iter().map(|t| mib(t.resident)).collect(),
        }
    }
}

impl Report {
    /// One row per decoder over all tasks, in the order of the tasks' rows.
    pub fn overall(&self) -> Vec<Overall> {
        overall::overall(&self.tasks)
    }

    /// Writes the result as JSON.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let setup = self.setup.clone();
        let saved = match self.tasks.as_slice() {
            [task] => Saved::One { setup, task: task.clone() },
            tasks => {
                let overall = self.overall();
                Saved::Several {
                    setup,
                    tasks: tasks.to_vec(),
                    derived: overall::derived(tasks),
                    overall,
                }
            }
        };
        write(&saved, path)
    }

    /// Reads a file of [`Self::save`]; means and derived presets are computed again.
    ///
    /// # Errors
    /// The file cannot be read, or is not a comparison of decoders.
    pub fn load(path: &Path) -> Result<Self> {
        let refuse = |code, why: String| exit::failure(code, format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(exit::NO_INPUT, error.to_string()))?;
        let value: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| refuse(exit::USAGE, format!("expected JSON, found {error}")))?;
        let saved: Saved = serde_json::from_value(value).map_err(|_| {
            let why = "expected a comparison of decoders as `asynclane-lab bench --json` writes it, \
                       found other keys";
            refuse(exit::USAGE, why.to_owned())
        })?;
        let (setup, tasks) = match saved {
            Saved::Several { setup, tasks, .. } => (setup, tasks),
            Saved::One { setup, task } => (setup, vec![task]),
        };
        let names = |task: &TaskReport| -> Vec<String> {
            task.decoders.iter().map(|entry| entry.name.clone()).collect()
        };
        let odd = tasks.iter().find(|task| names(task) != names(&tasks[0]));
        if let Some(odd) = odd {
            let why =
                format!("expected the same decoders in every task, found others in {}", odd.task);
            return Err(refuse(exit::USAGE, why));
        }
        if tasks.first().is_none_or(|task| task.decoders.is_empty()) {
            let why = "expected at least one decoder, found none".to_owned();
            return Err(refuse(exit::USAGE, why));
        }
        Ok(Self { setup, tasks })
    }
}

/// Writes a report as JSON.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &impl Serialize, path: &Path) -> Result<()> {
    write_text(&(serde_json::to_string_pretty(report)? + "\n"), path)
}

/// Writes a file; creates its folder if it is missing.
///
/// # Errors
/// The file cannot be written.
pub fn write_text(text: &str, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The command line with the binary's name without its path.
pub fn command() -> String {
    let quote = |arg: String| {
        if arg.contains([' ', ';']) { format!("\"{arg}\"") } else { arg }
    };
    let args = std::env::args().skip(1).map(quote);
    std::iter::once("asynclane-lab".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// `value` rounded to `digits` digits after the decimal point.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
