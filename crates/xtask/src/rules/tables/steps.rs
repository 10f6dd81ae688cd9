//! Tables of steps on a GPU beside PyTorch's.

use std::fmt::Write;

use crate::result::Steps;

/// A row per number format and number of rows.
pub(super) fn table(report: &Steps) -> String {
    let mut out = format!(
        "A step of {}, random weights, on one {}; PyTorch {} in bf16: `{}`\n\n| weights | rows | slots \
         | ms | of the floor | PyTorch ms | ratio |\n{}|\n",
        report.geometry,
        report.device,
        report.torch,
        report.command,
        "|---".repeat(7),
    );
    for row in &report.gpu_steps {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2}x |",
            row.dtype,
            row.rows,
            row.slots,
            row.ms,
            row.ms / row.floor_ms,
            row.torch_ms,
            row.torch_ms / row.ms,
        );
    }
    out
}
