//! The result of a comparison, and its form as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::overall::{self, Derived, Overall};
use super::run::Tally;
use crate::exit;

/// How a comparison was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The command that made it.
    pub command: String,
    /// Processor and thread count.
    pub machine: String,
    /// Held-out problems per task.
    pub problems: usize,
    /// Generation budget.
    pub max_tokens: u32,
    /// Sequences in flight.
    pub concurrency: usize,
}

/// One comparison: the same decoders on one or several problem sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How it was made.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// As named on the command line.
    pub name: String,
    /// schedule+commit+cache
    pub label: String,
    /// Right by the end, in percent.
    pub end: f64,
    /// Right in the whole text, in percent.
    pub strict: f64,
    /// Answers identical to the first decoder's, in percent; results of earlier versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Forward passes per output token.
    pub nfe_per_token: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Output tokens.
    pub tokens: u64,
    /// Output tokens per second, median over rounds.
    pub tps: f64,
    /// TPS over the first row's, median over rounds.
    pub ratio: f64,
    /// Share of wall time outside the model, in percent.
    pub overhead: f64,
}

/// A result file: of one task, or of several with what follows from all of them.
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
    /// Sums over `rounds`, medians of speed; `baseline` has the same rounds.
    pub fn new(name: &str, label: &str, rounds: &[Tally], baseline: &[Tally]) -> Self {
        let sum = |of: fn(&Tally) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
        let (problems, tokens) = (sum(|t| t.problems).max(1.0), sum(|t| t.tokens));
        let wall: f64 = rounds.iter().map(|t| t.wall.as_secs_f64()).sum();
        let execute: f64 = rounds.iter().map(|t| t.execute.as_secs_f64()).sum();
        let percent = |count: f64| round(100.0 * count / problems, 1);
        let ratios = rounds
            .iter()
            .zip(baseline)
            .map(|(ours, theirs)| ours.tps() / theirs.tps().max(1e-9));
        Self {
            name: name.to_owned(),
            label: label.to_owned(),
            end: percent(sum(|t| t.end)),
            strict: percent(sum(|t| t.strict)),
            agreement: Some(percent(sum(|t| t.agreed))),
            nfe_per_token: round(sum(|t| t.forwards) / tokens.max(1.0), 3),
            positions_per_token: round(sum(|t| t.positions) / tokens.max(1.0), 1),
            tokens: tokens as u64,
            tps: round(median(rounds.iter().map(Tally::tps).collect()), 1),
            ratio: round(median(ratios.collect()), 2),
            overhead: round(100.0 * (wall - execute) / wall.max(1e-9), 2),
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
            [task] => Saved::One {
                setup,
                task: task.clone(),
            },
            tasks => {
                let overall = self.overall();
                Saved::Several {
                    setup,
                    tasks: tasks.to_vec(),
                    derived: overall::derived(&overall),
                    overall,
                }
            }
        };
        write(&saved, path)
    }

    /// Reads what [`Self::save`] wrote; what follows from all tasks is worked out anew.
    ///
    /// # Errors
    /// The file cannot be read, or is no comparison of decoders.
    pub fn load(path: &Path) -> Result<Self> {
        let refuse = |code, why: String| exit::failure(code, format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(exit::NO_INPUT, error.to_string()))?;
        let value: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| refuse(exit::USAGE, format!("expected JSON, found {error}")))?;
        let saved: Saved = serde_json::from_value(value).map_err(|_| {
            let why = "expected a comparison of decoders as `asynclane bench --json` writes it, \
                       found other keys";
            refuse(exit::USAGE, why.to_owned())
        })?;
        let (setup, tasks) = match saved {
            Saved::Several { setup, tasks, .. } => (setup, tasks),
            Saved::One { setup, task } => (setup, vec![task]),
        };
        let names = |task: &TaskReport| -> Vec<String> {
            task.decoders
                .iter()
                .map(|entry| entry.name.clone())
                .collect()
        };
        let odd = tasks.iter().find(|task| names(task) != names(&tasks[0]));
        if let Some(odd) = odd {
            let why = format!(
                "expected the same decoders in every task, found others in {}",
                odd.task
            );
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

/// Writes a file, and its folder if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn write_text(text: &str, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The command line, with the binary's bare name.
pub fn command() -> String {
    let quote = |arg: String| {
        if arg.contains([' ', ';']) {
            format!("\"{arg}\"")
        } else {
            arg
        }
    };
    let args = std::env::args().skip(1).map(quote);
    std::iter::once("asynclane".to_owned())
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Processor name and threads.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, {threads} threads",
        name.unwrap_or(std::env::consts::ARCH).trim()
    )
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

/// `value` with so many digits behind the point.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
