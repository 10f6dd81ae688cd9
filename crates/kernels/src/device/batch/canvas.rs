//! The additional fields of a canvas model's rows (DiffusionGemma).

use super::{BatchArrays, BatchLimits, DeviceBatch, Section};
use crate::attention::Visible;

/// The additional fields of a canvas model's rows.
#[derive(Clone, Copy, Debug)]
pub struct CanvasRows<'a> {
    /// The slots that each row sees in layers with a window, `[r]`.
    pub windowed: &'a [Visible],
    /// The rows of canvases that are denoised, ascending; the other rows are encoded.
    pub denoised: &'a [u32],
    /// The denoised rows that have a mean embedding under their last distribution, ascending.
    pub conditioned: &'a [u32],
    /// The divisor of each scored row's logits.
    pub scales: &'a [f32],
    /// The mean embeddings of all rows, `[r, d]`, for backends that do not hold them; zeros for rows
    /// without one, empty if no row has one.
    pub soft: &'a [f32],
}

/// Bits of what a row is; `Kind` of the kernels.
const DENOISED: u32 = 1;
const CONDITIONED: u32 = 2;

impl DeviceBatch {
    /// Adds the fields of a canvas model's rows.
    pub(super) fn put_canvas(
        &mut self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        canvas: &CanvasRows<'_>,
    ) {
        self.put_visible(canvas.windowed, true);
        self.put_tiles(arrays, limits, canvas.windowed, true);
        let rows = self.shape.rows;
        self.put(Section::Kinds, |out| {
            let start = out.len();
            out.resize(start + rows, 0);
            for (listed, kind) in [(canvas.denoised, DENOISED), (canvas.conditioned, CONDITIONED)] {
                for row in listed {
                    out[start + *row as usize] |= kind;
                }
            }
        });
    }
}
