//! Tables of routers over replicas.

use std::fmt::Write;

use crate::result::{Router, Routers};

/// A column and what a row has for it, a value per round.
type Column = (&'static str, &'static str, fn(&Router) -> &[f64]);

const COLUMNS: [Column; 7] = [
    ("requests/s, two replicas", "", |row| {
        &row.requests_per_second
    }),
    ("two replicas over one", "x", |row| &row.two_over_one),
    ("of no router's", "x", |row| &row.of_direct),
    ("plain: ratio", "x", |row| &row.plain_ratio),
    ("added ms", "", |row| &row.plain_added_ms),
    ("streamed: added ms", "", |row| &row.streamed_added_ms),
    ("one token: added ms", "", |row| &row.one_token_added_ms),
];

/// A row per router: the median of its rounds, and the least and the most.
pub(super) fn table(report: &Routers) -> String {
    let rounds = report
        .routers
        .first()
        .map_or(0, |row| row.two_over_one.len());
    let mut out = format!(
        "{} requests by {} clients, {rounds} rounds, {}, a thread for each replica: `{}`\n\n\
         | router |",
        report.requests, report.clients, report.machine, report.command,
    );
    for (name, ..) in COLUMNS {
        let _ = write!(out, " {name} |");
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(1 + COLUMNS.len()));
    for row in &report.routers {
        let _ = write!(out, "| {} |", row.name);
        for (_, unit, values) in COLUMNS {
            let _ = write!(out, " {} |", range(values(row), unit));
        }
        out.push('\n');
    }
    out
}

/// `1.62x (1.48 to 1.71)`
fn range(values: &[f64], unit: &str) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
        return "–".to_owned();
    };
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    };
    format!("{median:.2}{unit} ({low:.2} to {high:.2})")
}
