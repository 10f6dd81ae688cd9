//! Tables of steps in long contexts.

use std::fmt::Write;

use crate::result::Contexts;

/// A row per step.
pub(super) fn table(report: &Contexts) -> String {
    let mut out = format!(
        "Steps of {}, random weights, {}: `{}`\n\n| K/V | slots | rows | ms | GB to read | ms to read \
         them | ratio | attention ms | ms to read K/V | attention, % of the peak |\n{}|\n",
        report.geometry,
        report.machine,
        report.command,
        "|---".repeat(10),
    );
    for row in &report.contexts {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.1} | {:.2} | {:.1} | {:.2}x | {:.1} | {:.1} | {:.0} |",
            row.kv,
            row.slots,
            row.rows,
            row.ms,
            row.gb,
            row.least_ms,
            row.ratio,
            row.attention_ms,
            row.attention_least_ms,
            row.attention_of_peak,
        );
    }
    out
}
