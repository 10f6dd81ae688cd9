//! The accuracy of rows that differ in one setting, and whether they differ from the first row beyond
//! chance.

use std::fmt::Write;

use crate::result::{Entry, Several};

/// The ridges of the cost: an H200 in bf16, and a CPU.
const RIDGES: [u32; 2] = [184, 4];

/// A row per decoder with its accuracy on each problem set, the problems that only it or only the
/// first row solves, the 95 % interval of the difference in points, and the mean cost of a token.
pub(super) fn table(report: &Several) -> String {
    let first = report.overall.first().map_or("", |row| &row.name);
    let mut out = format!(
        "{} held-out problems of each kind, {}, strict %; problems won and lost against `{first}` and \
         the 95 % interval of the difference in points: `{}`\n\n| decoder |",
        report.setup.problems, report.setup.machine, report.setup.command,
    );
    for task in &report.tasks {
        let _ = write!(out, " {} |", task.task);
    }
    let columns = 4 + RIDGES.len() + report.tasks.len();
    out.push_str(" mean | same answer % | NFE/token |");
    for ridge in RIDGES {
        let _ = write!(out, " cost at {ridge} |");
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(columns));
    for (index, row) in report.overall.iter().enumerate() {
        let _ = write!(out, "| `{}` |", row.name);
        for task in &report.tasks {
            let entry = task.decoders.get(index);
            let text = entry.map_or("–".to_owned(), |entry| cell(entry, index == 0));
            let _ = write!(out, " {text} |");
        }
        let agreement = row.agreement.map(|share| format!("{share:.1}"));
        let _ = write!(
            out,
            " {:.1} | {} | {:.3} |",
            row.strict,
            agreement.as_deref().unwrap_or("–"),
            row.nfe_per_token,
        );
        for ridge in RIDGES {
            let _ = write!(out, " {:.3} |", cost(report, index, ridge));
        }
        out.push('\n');
    }
    out
}

/// The mean over the problem sets of a row's cost of a token, in readings of the weights.
fn cost(report: &Several, index: usize, ridge: u32) -> f64 {
    let rows = report.tasks.iter().filter_map(|of| of.decoders.get(index));
    let one = |row: &Entry| {
        let reading = row.positions_per_token / f64::from(ridge);
        row.nfe_per_token.max(reading)
    };
    rows.map(one).sum::<f64>() / report.tasks.len().max(1) as f64
}

fn cell(entry: &Entry, is_first: bool) -> String {
    match entry.paired.as_ref().filter(|_| !is_first) {
        None => format!("{:.1}", entry.strict),
        Some(paired) => {
            let [low, high] = paired.interval;
            let (won, lost) = (paired.won, paired.lost);
            format!(
                "{:.1} (+{won} -{lost}, {low:.1} to {high:.1})",
                entry.strict
            )
        }
    }
}
