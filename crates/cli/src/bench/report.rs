//! The result of a comparison, as a table and as JSON.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::run::Tally;

/// One comparison.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command that made it.
    pub command: String,
    /// Processor and thread count.
    pub machine: String,
    /// Problem family.
    pub task: String,
    /// Held-out problems.
    pub problems: usize,
    /// Generation budget.
    pub max_tokens: u32,
    /// Sequences in flight.
    pub concurrency: usize,
    /// One entry per decoder, the baseline first.
    pub decoders: Vec<Entry>,
}

/// One decoder's row.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// As named on the command line.
    pub name: String,
    /// schedule+commit+cache
    pub label: String,
    /// Right by the end, in percent.
    pub end: f64,
    /// Right in the whole text, in percent.
    pub strict: f64,
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

impl Entry {
    /// Sums over `rounds`, medians of speed; `baseline` has the same rounds.
    pub fn new(name: &str, label: &str, rounds: &[Tally], baseline: &[Tally]) -> Self {
        let sum = |of: fn(&Tally) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
        let (problems, tokens) = (sum(|t| t.problems).max(1.0), sum(|t| t.tokens));
        let wall: f64 = rounds.iter().map(|t| t.wall.as_secs_f64()).sum();
        let execute: f64 = rounds.iter().map(|t| t.execute.as_secs_f64()).sum();
        let ratios = rounds
            .iter()
            .zip(baseline)
            .map(|(ours, theirs)| ours.tps() / theirs.tps());
        Self {
            name: name.to_owned(),
            label: label.to_owned(),
            end: round(100.0 * sum(|t| t.end) / problems, 1),
            strict: round(100.0 * sum(|t| t.strict) / problems, 1),
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
    /// The table for the terminal.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{} {}, budget {}, concurrency {}, {}\n",
            self.problems, self.task, self.max_tokens, self.concurrency, self.machine
        );
        let _ = writeln!(
            out,
            "{:<28} {:>6} {:>7} {:>10} {:>14} {:>9} {:>8}",
            "decoder", "end %", "strict %", "NFE/token", "positions/token", "TPS", "ratio"
        );
        for entry in &self.decoders {
            let _ = writeln!(
                out,
                "{:<28} {:>6.1} {:>8.1} {:>10.3} {:>15.1} {:>9.1} {:>7.2}x",
                entry.name,
                entry.end,
                entry.strict,
                entry.nfe_per_token,
                entry.positions_per_token,
                entry.tps,
                entry.ratio
            );
        }
        out
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
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

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
