//! What rows cost on each problem set by counts, which no machine changes.

use std::fmt::Write;

use crate::result::Several;

/// A row per decoder; for each problem set its strict accuracy, forward passes and positions per token.
pub(super) fn table(report: &Several) -> String {
    let mut out = format!(
        "{} held-out problems of each kind, {}; strict %, forward passes per token, positions per token: \
         `{}`\n\n| decoder |",
        report.setup.problems, report.setup.machine, report.setup.command,
    );
    for task in &report.tasks {
        let _ = write!(out, " {} |", task.task);
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(1 + report.tasks.len()));
    for (index, row) in report.overall.iter().enumerate() {
        let _ = write!(out, "| `{}` |", row.name);
        for task in &report.tasks {
            let cell = task.decoders.get(index).map_or("–".to_owned(), |entry| {
                let (forwards, positions) = (entry.nfe_per_token, entry.positions_per_token);
                format!("{:.1} @ {forwards:.3}, {positions:.1}", entry.strict)
            });
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}
