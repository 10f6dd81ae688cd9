//! Tables of two servers on one file.

use std::fmt::Write;

use crate::result::Serving;

/// A row per number of streams and server.
pub(super) fn table(report: &Serving) -> String {
    let mut out = format!(
        "{}, {} tokens per request, {}: `{}`\n\n| streams | server | TPS | TTFT ms | ratio |\n{}|\n",
        report.model,
        report.tokens,
        report.machine,
        report.command,
        "|---".repeat(5),
    );
    for row in &report.serving {
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {:.1} | {:.2}x |",
            row.concurrency, row.name, row.tps, row.ttft_ms, row.ratio
        );
    }
    out
}
