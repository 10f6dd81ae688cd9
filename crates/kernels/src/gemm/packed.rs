//! Weights in the order that tiles read them.

use super::encode;
use crate::parallel::{self, Shared};
use crate::simd::unit::{Unit, WeightDtype};

/// Sixteen words on their own cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// A weight matrix `[n, k]` in panels of `2 * LANES` columns of the product: panel by panel,
/// for each word of the inner dimension the panel's columns side by side, the last panel padded
/// with zeros. Where sums do not start at zero, what they start at comes first.
pub(crate) struct Packed {
    lines: Vec<Line>,
    /// One per packed column, or none where the dtype has no scales.
    scales: Vec<f32>,
    unit: Unit,
    k: usize,
    /// Words of a column.
    words: usize,
    panels: usize,
}

impl Packed {
    /// Packs panels of columns; `column(j)` is the weight row (length `k`) of packed column
    /// `j`, or none for padding. `columns` counts packed columns with padding.
    pub(crate) fn new<'a>(
        unit: Unit,
        k: usize,
        columns: usize,
        column: impl Fn(usize) -> Option<&'a [f32]> + Sync,
    ) -> Self {
        let (width, dtype) = (unit.panel(), unit.dtype());
        let (panels, words) = (columns.div_ceil(width), encode::words(dtype, k));
        let start = start(dtype);
        let per_panel = (start + words) * width / 16;
        let mut lines = vec![Line([0; 16]); panels * per_panel];
        let mut scales = vec![0.0; start * panels * width];
        let (shared, shared_scales) = (Shared::new(&mut lines), Shared::new(&mut scales));
        parallel::for_each(panels, |panel| {
            // SAFETY: one task per panel.
            let (lines, scales) = unsafe {
                let scales = shared_scales.part(start * panel * width, start * width);
                (shared.part(panel * per_panel, per_panel), scales)
            };
            let mut encoded = vec![0u32; words];
            let columns = (0..width).filter_map(|lane| Some((lane, column(panel * width + lane)?)));
            for (lane, weights) in columns {
                let mut put = |row: usize, word: u32| {
                    let at = row * width + lane;
                    lines[at / 16].0[at % 16] = word;
                };
                match dtype {
                    WeightDtype::F32 => {
                        let bits = encoded.iter_mut().zip(weights);
                        bits.for_each(|(word, x)| *word = x.to_bits());
                    }
                    WeightDtype::Bf16 => encode::round_to_bf16(weights, &mut encoded),
                    WeightDtype::Int8 => {
                        let (scale, start) = encode::column_to_bytes(weights, &mut encoded);
                        scales[lane] = scale;
                        put(0, start);
                    }
                }
                let encoded = encoded.iter().enumerate();
                encoded.for_each(|(p, &word)| put(start + p, word));
            }
        });
        Self {
            lines,
            scales,
            unit,
            k,
            words,
            panels,
        }
    }

    /// Inner dimension.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// What multiplies it.
    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice()) + size_of_val(self.scales.as_slice())
    }

    pub(super) fn panels(&self) -> usize {
        self.panels
    }

    /// Words of a column.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// What the sums of a panel's columns start at, where they do not start at zero, and the
    /// panel's words.
    pub(super) fn panel(&self, index: usize) -> (*const u32, *const u32) {
        assert!(index < self.panels, "panel {index} of {}", self.panels);
        let (width, start) = (self.unit.panel(), start(self.unit.dtype()));
        let at = index * (start + self.words) * width;
        let words = self.lines.as_ptr().cast::<u32>();
        // SAFETY: in bounds by construction.
        unsafe { (words.add(at), words.add(at + start * width)) }
    }

    /// Scales of a panel's columns; dangling where the dtype has none.
    pub(super) fn scales(&self, panel: usize) -> *const f32 {
        let width = self.unit.panel();
        let scales = self.scales.get(panel * width..(panel + 1) * width);
        scales.map_or(std::ptr::null(), <[f32]>::as_ptr)
    }
}

/// Rows of start values in front of a panel.
fn start(dtype: WeightDtype) -> usize {
    usize::from(dtype == WeightDtype::Int8)
}
