//! Weights in the order that tiles read them.

use super::encode;
use super::words::Words;
use crate::parallel::{self, Shared};
use crate::simd::unit::{Unit, WeightDtype};

/// A weight matrix `[n, k]` in panels of `2 * LANES` columns of the product: panel by panel,
/// for each word of the inner dimension the panel's columns side by side, the last panel padded
/// with zeros. Where sums do not start at zero, what they start at comes first.
pub(crate) struct Packed {
    words: Words,
    /// One per packed column, or none where the dtype has no scales.
    scales: Vec<f32>,
    unit: Unit,
    k: usize,
    /// Words of a column.
    length: usize,
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
        let (panels, length) = (columns.div_ceil(width), encode::words(dtype, k));
        let start = start(dtype);
        let per_panel = (start + length) * width;
        let mut words = Words::zeros(panels * per_panel);
        let mut scales = vec![0.0; start * panels * width];
        let (shared, shared_scales) = (Shared::new(words.as_mut()), Shared::new(&mut scales));
        parallel::for_each(panels, |panel| {
            // SAFETY: one task per panel.
            let (packed, scales) = unsafe {
                let scales = shared_scales.part(start * panel * width, start * width);
                (shared.part(panel * per_panel, per_panel), scales)
            };
            let mut encoded = vec![0u32; length];
            let columns = (0..width).filter_map(|lane| Some((lane, column(panel * width + lane)?)));
            for (lane, weights) in columns {
                let mut put = |row: usize, word: u32| packed[row * width + lane] = word;
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
            words,
            scales,
            unit,
            k,
            length,
            panels,
        }
    }

    /// Bytes that `columns` packed columns over `k` take.
    pub(crate) fn bytes_of(unit: Unit, k: usize, columns: usize) -> usize {
        let (width, dtype) = (unit.panel(), unit.dtype());
        let (panels, start) = (columns.div_ceil(width), start(dtype));
        let words = panels * (start + encode::words(dtype, k)) * width;
        Words::bytes(words) + start * panels * width * size_of::<f32>()
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
        size_of_val(self.words.as_ref()) + size_of_val(self.scales.as_slice())
    }

    /// Packed columns, padding included.
    pub(super) fn columns(&self) -> usize {
        self.panels * self.unit.panel()
    }

    pub(super) fn panels(&self) -> usize {
        self.panels
    }

    /// Words of a column.
    pub(super) fn words(&self) -> usize {
        self.length
    }

    /// From one panel to the next.
    pub(super) fn panel_words(&self) -> usize {
        (start(self.unit.dtype()) + self.length) * self.unit.panel()
    }

    /// What the sums of a panel's columns start at, where they do not start at zero, and the
    /// panel's words.
    pub(super) fn panel(&self, index: usize) -> (*const u32, *const u32) {
        assert!(index < self.panels, "panel {index} of {}", self.panels);
        let (width, start) = (self.unit.panel(), start(self.unit.dtype()));
        let at = index * self.panel_words();
        let words = &self.words.as_ref()[at..at + self.panel_words()];
        (words.as_ptr(), words[start * width..].as_ptr())
    }

    /// Scales of a panel's columns; none where the dtype has none.
    pub(super) fn scales(&self, panel: usize) -> Option<&[f32]> {
        let width = self.unit.panel();
        self.scales.get(panel * width..(panel + 1) * width)
    }
}

/// Rows of start values in front of a panel.
fn start(dtype: WeightDtype) -> usize {
    usize::from(dtype == WeightDtype::Int8)
}
