//! The short tables of a comparison: accuracy and cost over all problem sets, and the accuracy on each
//! set.

use std::fmt::Write;

use crate::result::{Overall, Several};

/// The rows called `names`, in that order: accuracy, and forward passes and rows per token, which no
/// machine changes.
///
/// # Errors
/// A name that is neither a decoder nor a derived preset of the result.
pub(super) fn table(report: &Several, names: &[&str]) -> Result<String, String> {
    let mut out = format!(
        "{} held-out problems of each kind:\n\n",
        report.setup.problems
    );
    out.push_str(
        "| preset | accuracy | forwards per token | rows per token |\n|---|---|---|---|\n",
    );
    for name in names {
        let row = row(report, name).ok_or_else(|| format!("the result has no row {name}"))?;
        let _ = writeln!(
            out,
            "| `{name}` | {:.1} % | {:.2} | {:.0} |",
            row.strict, row.nfe_per_token, row.positions_per_token,
        );
    }
    Ok(out)
}

/// The rows called `names`, in that order: the share of answers that are right as a whole, for each
/// problem set.
///
/// # Errors
/// A name that is neither a decoder nor a derived preset of the result.
pub(super) fn sets(report: &Several, names: &[&str]) -> Result<String, String> {
    let mut out = String::from("| preset |");
    for task in &report.tasks {
        let _ = write!(out, " {} |", task.task);
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(1 + report.tasks.len()));
    for name in names {
        let decoder = row(report, name)
            .map(|row| &row.name)
            .ok_or_else(|| format!("the result has no row {name}"))?;
        let _ = write!(out, "| `{name}` |");
        for task in &report.tasks {
            let entry = task.decoders.iter().find(|entry| entry.name == *decoder);
            let entry = entry.ok_or_else(|| format!("{}: no row {decoder}", task.task))?;
            let _ = write!(out, " {:.1} % |", entry.strict);
        }
        out.push('\n');
    }
    Ok(out)
}

/// The row of a decoder by its name, or by the preset that was derived from it.
pub(super) fn row<'a>(report: &'a Several, name: &str) -> Option<&'a Overall> {
    let derived = report.derived.iter().find(|row| row.preset == name);
    let name = derived.map_or(name, |row| &row.decoder);
    report.overall.iter().find(|row| row.name == name)
}
