//! Tables of a comparison for the terminal.

use std::fmt::Write;

use super::latency::Percentiles;
use super::overall::{self, Overall, RIDGES, cost};
use super::report::{Report, TaskReport};

/// One table per task; with several tasks also one over all, the fastest first, and the presets
/// derived from it.
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
            "{} {}, {}, {}",
            setup.problems,
            task.task,
            setup.conditions(),
            setup.machine
        );
        rows(&mut out, task, (width, !setup.ungraded));
        out.push('\n');
        if !setup.ungraded && task.decoders.iter().any(|entry| entry.paired.is_some()) {
            paired(&mut out, task, width);
            out.push('\n');
        }
        if task.decoders.iter().any(|entry| entry.draft_model.is_some()) {
            drafts(&mut out, task, width);
            out.push('\n');
        }
        checks(&mut out, task);
        if task.decoders.iter().any(|entry| entry.latency.is_some()) {
            waits(&mut out, task, width);
            out.push('\n');
        }
    }
    if report.tasks.len() > 1 {
        let rows = report.overall();
        means(&mut out, &rows, width);
        out.push('\n');
        derived(&mut out, report);
    }
    out
}

fn rows(out: &mut String, task: &TaskReport, (width, graded): (usize, bool)) {
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
        let grade = |value: f64| percent(graded.then_some(value));
        let _ = writeln!(
            out,
            "{:<width$} {:>6} {:>8} {:>10.3} {:>15.1} {:>9.1} {:>7.2}x {:>10} {:>11}",
            entry.name,
            grade(entry.end),
            grade(entry.strict),
            entry.nfe_per_token,
            entry.positions_per_token,
            entry.tps,
            entry.ratio,
            number(entry.overhead, 2),
            percent(entry.agreement),
        );
    }
}

/// The whole texts of each decoder beside the first one's, and the work per output token.
fn paired(out: &mut String, task: &TaskReport, width: usize) {
    let costs = RIDGES.map(|ridge| format!("cost at {ridge}"));
    let _ = writeln!(
        out,
        "{:<width$} {:>5} {:>5} {:>16} {:>7} {:>12} {:>12} {:>12}",
        "strict, beside the first",
        "won",
        "lost",
        "95 % interval",
        "p",
        costs[0],
        costs[1],
        costs[2]
    );
    for entry in &task.decoders {
        let Some(paired) = entry.paired else { continue };
        let [low, high] = paired.interval;
        let cost = RIDGES.map(|ridge| format!("{:.3}", cost(entry, ridge)));
        let _ = writeln!(
            out,
            "{:<width$} {:>5} {:>5} {:>16} {:>7.4} {:>12} {:>12} {:>12}",
            entry.name,
            paired.won,
            paired.lost,
            format!("{low:+.1} .. {high:+.1}"),
            paired.p,
            cost[0],
            cost[1],
            cost[2],
        );
    }
    let _ = writeln!(
        out,
        "cost at R: time per output token of one sequence, in readings of the weights, on a machine that \
         computes R rows in the time of a reading"
    );
}

/// Counts of the draft model.
fn drafts(out: &mut String, task: &TaskReport, width: usize) {
    let _ = writeln!(
        out,
        "{:<width$} {:>10} {:>15} {:>10}",
        "draft model", "NFE/token", "positions/token", "accepted %"
    );
    for entry in &task.decoders {
        let Some(draft) = entry.draft_model else {
            continue;
        };
        let (nfe, positions) = (draft.nfe_per_token, draft.positions_per_token);
        let _ = writeln!(
            out,
            "{:<width$} {nfe:>10.3} {positions:>15.1} {:>10.1}",
            entry.name, draft.accepted
        );
    }
}

/// Guesses of the model that checks accepted.
fn checks(out: &mut String, task: &TaskReport) {
    for entry in &task.decoders {
        if let Some(length) = entry.accepted_length {
            let _ = writeln!(out, "{}: {length:.2} tokens per check", entry.name);
        }
    }
}

/// Latencies, the speed of the scheduler, resident memory.
fn waits(out: &mut String, task: &TaskReport, width: usize) {
    let columns = ["TTFT ms", "TPOT ms", "E2E ms"].map(|name| format!("{name} p50 / p95 / p99"));
    let [ttft, tpot, e2e] = columns;
    let _ = writeln!(
        out,
        "{:<width$} {ttft:>26} {tpot:>26} {e2e:>26} {:>12} {:>13}",
        "", "rows planned/s", "resident MiB"
    );
    for entry in &task.decoders {
        let Some(latency) = &entry.latency else {
            continue;
        };
        let three = |[a, b, c]: Percentiles| format!("{a:.1} / {b:.1} / {c:.1}");
        let _ = writeln!(
            out,
            "{:<width$} {:>26} {:>26} {:>26} {:>14} {:>13}",
            entry.name,
            three(latency.ttft_ms),
            three(latency.tpot_ms),
            three(latency.e2e_ms),
            number(entry.scheduled_rows_per_second, 0),
            number(entry.resident_mib.last().copied(), 1),
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

fn derived(out: &mut String, report: &Report) {
    let rows = &report.tasks[0].decoders;
    // Presets are derived among the decoders of one model.
    if rows.iter().any(|row| row.name.contains(':')) {
        return;
    }
    for preset in overall::derived(&report.tasks) {
        let _ = writeln!(
            out,
            "derived: {} = {} (cost {:.4}; the cheapest or nearly, surely within {} points of {} on every set, strict)",
            preset.preset, preset.decoder, preset.cost, preset.within, rows[0].name,
        );
    }
}

fn percent(value: Option<f64>) -> String {
    number(value, 1)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
