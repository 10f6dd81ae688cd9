//! What rows cost on each problem set by counts, which no machine changes.

use std::fmt::Write;

use crate::result::{Entry, Several};

/// A row per decoder; for each problem set its strict accuracy, forward passes and positions per token,
/// and the tokens of a forward pass that checks guesses.
pub(super) fn table(report: &Several) -> String {
    let mut entries = report.tasks.iter().flat_map(|task| &task.decoders);
    let checks = match entries.any(|entry| entry.accepted_length.is_some()) {
        true => ", tokens per forward pass that checks guesses",
        false => "",
    };
    let mut out = format!(
        "{} held-out problems of each kind, {}; strict %, forward passes per token, positions per token\
         {checks}: `{}`\n\n| decoder |",
        report.setup.problems, report.setup.machine, report.setup.command,
    );
    for task in &report.tasks {
        let _ = write!(out, " {} |", task.task);
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(1 + report.tasks.len()));
    for (index, row) in report.overall.iter().enumerate() {
        let _ = write!(out, "| `{}` |", row.name);
        for task in &report.tasks {
            let cell = task.decoders.get(index).map_or("–".to_owned(), cell);
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}

fn cell(entry: &Entry) -> String {
    let (forwards, positions) = (entry.nfe_per_token, entry.positions_per_token);
    let accepted = entry.accepted_length.map(|length| format!(", {length:.2}"));
    let accepted = accepted.unwrap_or_default();
    format!(
        "{:.1} @ {forwards:.3}, {positions:.1}{accepted}",
        entry.strict
    )
}
