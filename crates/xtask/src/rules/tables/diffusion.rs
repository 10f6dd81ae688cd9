//! Tables of a masked diffusion model on one file.

use std::fmt::Write;

use crate::result::Diffusion;

/// A row per number format and decoder.
pub(super) fn table(report: &Diffusion) -> String {
    let mut out = format!(
        "{}, random weights, {} tokens of prompt and answer, {}: `{}`\n\n| file | decoder | forward \
         passes | answer ms | ms per pass | ratio |\n{}|\n",
        report.geometry,
        report.length,
        report.machine,
        report.command,
        "|---".repeat(6),
    );
    for row in &report.diffusion {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0} | {:.1} | {:.2}x |",
            row.format, row.name, row.forwards, row.ms, row.ms_per_forward, row.ratio
        );
    }
    out
}
