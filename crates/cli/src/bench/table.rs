//! A comparison as tables for the terminal.

use std::fmt::Write;

use super::overall::{self, Overall};
use super::report::{Report, TaskReport};

/// One table per task; with several tasks one over all of them, the fastest first, and the
/// presets that follow from it.
pub fn text(report: &Report) -> String {
    let width = report
        .tasks
        .iter()
        .flat_map(|task| &task.decoders)
        .map(|entry| entry.name.chars().count())
        .fold(28, usize::max);
    let mut out = String::new();
    for task in &report.tasks {
        let setup = &report.setup;
        let _ = writeln!(
            out,
            "{} {}, budget {}, concurrency {}, {}",
            setup.problems, task.task, setup.max_tokens, setup.concurrency, setup.machine
        );
        rows(&mut out, task, width);
        out.push('\n');
    }
    if report.tasks.len() > 1 {
        let rows = report.overall();
        means(&mut out, &rows, width);
        out.push('\n');
        derived(&mut out, &rows);
    }
    out
}

fn rows(out: &mut String, task: &TaskReport, width: usize) {
    let _ = writeln!(
        out,
        "{:<width$} {:>6} {:>8} {:>10} {:>15} {:>9} {:>8} {:>10} {:>11}",
        "decoder",
        "end %",
        "strict %",
        "NFE/token",
        "positions/token",
        "TPS",
        "ratio",
        "overhead %",
        "agreement %"
    );
    for entry in &task.decoders {
        let _ = writeln!(
            out,
            "{:<width$} {:>6.1} {:>8.1} {:>10.3} {:>15.1} {:>9.1} {:>7.2}x {:>10.2} {:>11}",
            entry.name,
            entry.end,
            entry.strict,
            entry.nfe_per_token,
            entry.positions_per_token,
            entry.tps,
            entry.ratio,
            entry.overhead,
            percent(entry.agreement),
        );
    }
}

fn means(out: &mut String, rows: &[Overall], width: usize) {
    let _ = writeln!(
        out,
        "all tasks: means, of the ratio the geometric one; * is the Pareto front of strict % and \
         ratio\n{:<width$} {:>6} {:>8} {:>10} {:>15} {:>11} {:>8}",
        "decoder", "end %", "strict %", "NFE/token", "positions/token", "agreement %", "ratio"
    );
    let mut sorted: Vec<&Overall> = rows.iter().collect();
    sorted.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    for row in sorted {
        let _ = writeln!(
            out,
            "{:<width$} {:>6.1} {:>8.1} {:>10.3} {:>15.1} {:>11} {:>7.2}x{}",
            row.name,
            row.end,
            row.strict,
            row.nfe_per_token,
            row.positions_per_token,
            percent(row.agreement),
            row.ratio,
            if row.pareto { " *" } else { "" },
        );
    }
}

fn derived(out: &mut String, rows: &[Overall]) {
    for preset in overall::derived(rows) {
        let _ = writeln!(
            out,
            "derived: {} = {} ({:.2}x; the fastest within {} points of {}, end and strict)",
            preset.preset, preset.decoder, preset.ratio, preset.within, rows[0].name,
        );
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}
