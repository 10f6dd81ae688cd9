//! Tables of forward passes by their number of rows, beside other implementations.

use std::fmt::Write;

use crate::result::Ladder;

/// A row per number format and number of rows.
pub(super) fn table(report: &Ladder) -> String {
    let mut out = format!(
        "One forward pass of {}, random weights, {}; {}: `{}`\n\n| weights | rows | forward ms | \
         llama.cpp ms | ratio | products ms | PyTorch's products ms | ratio |\n{}|\n",
        report.geometry,
        report.machine,
        report.peers,
        report.command,
        "|---".repeat(8),
    );
    let ms = |time: Option<f64>| time.map_or("–".to_owned(), |time| format!("{time:.1}"));
    let times = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}x"));
    for row in &report.ladder {
        let _ = writeln!(
            out,
            "| {} ({}) | {} | {:.1} | {:.1} | {:.2}x | {:.1} | {} | {} |",
            row.dtype,
            row.llama,
            row.rows,
            row.ms,
            row.llama_ms,
            row.llama_ratio,
            row.products_ms,
            ms(row.torch_ms),
            times(row.torch_ratio),
        );
    }
    out
}
