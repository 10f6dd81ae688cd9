//! Tables of forward passes.

use std::fmt::Write;

use crate::result::{Forward, Passes, Profile};

/// A column and what a row has for it, if it has.
type Column = (&'static str, fn(&Passes) -> Option<String>);

const COLUMNS: [Column; 6] = [
    ("side", |row| row.name.clone()),
    ("rows", |row| Some(row.rows.to_string())),
    ("ms", |row| Some(format!("{:.3}", row.ms))),
    ("products, % of the peak", |row| {
        Some(format!("{:.0}", row.products_of_peak?))
    }),
    ("forward, % of the peak", |row| {
        Some(format!("{:.0}", row.forward_of_peak?))
    }),
    ("ratio", |row| Some(format!("{:.2}x", row.ratio?))),
];

/// A row per size, then a column per profile.
pub(super) fn table(report: &Forward) -> String {
    let mut out = format!(
        "Forward passes of {}, random weights, {}: `{}`\n\n",
        report.geometry, report.machine, report.command
    );
    let rows = &report.forward;
    let known = |column: &&Column| rows.iter().any(|row| column.1(row).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(known).collect();
    for (name, _) in &columns {
        let _ = write!(out, "| {name} ");
    }
    let _ = writeln!(out, "|\n{}|", "|---".repeat(columns.len()));
    for row in rows {
        for (_, value) in &columns {
            let _ = write!(out, "| {} ", value(row).as_deref().unwrap_or("–"));
        }
        out.push_str("|\n");
    }
    if !report.profiles.is_empty() {
        profiles(&mut out, &report.profiles);
    }
    out
}

fn profiles(out: &mut String, profiles: &[Profile]) {
    out.push('\n');
    let mut row = |name: &str, value: &dyn Fn(&Profile) -> String| {
        let cells: Vec<String> = profiles.iter().map(value).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    };
    let shape = |profile: &Profile| format!("{} x {} rows", profile.sequences, profile.passes.rows);
    row("% of the wall time", &shape);
    row("---", &|_| "---".to_owned());
    for (at, (part, _)) in profiles[0].parts.iter().enumerate() {
        row(part, &|profile| format!("{:.1}", profile.parts[at].1));
    }
    row("**linear, head and attention**", &|profile| {
        format!("**{:.1}**", profile.work)
    });
    row("ms", &|profile| format!("{:.2}", profile.passes.ms));
    let optional = |value: Option<f64>, digits: usize| {
        value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
    };
    row("products, % of the peak", &|profile| {
        optional(profile.passes.products_of_peak, 0)
    });
    row("threads busy", &|profile| optional(profile.threads_busy, 2));
    row("of it system, %", &|profile| optional(profile.system, 1));
}
