//! Weights packed in the order in which tiles read them.

use super::encode;
use super::words::Words;
use crate::parallel::{self, Shared};
use crate::simd::unit::{Unit, WeightDtype};

/// A weight matrix `[n, k]` in panels of `2 * LANES` columns of the product. A panel holds, for each
/// word of the inner dimension, the words of its columns contiguously; the last panel is padded with
/// zeros. If sums do not start at zero, their start values come first in a panel.
pub(crate) struct Packed {
    words: Words,
    /// One per packed column; empty if the dtype has no scales.
    scales: Vec<f32>,
    unit: Unit,
    k: usize,
    /// Words of a column.
    length: usize,
    panels: usize,
}

impl Packed {
    /// Packs `columns` columns, including padding. `column(j)` is the weight row (length `k`) of
    /// packed column `j`, `None` for padding.
    pub(crate) fn new<'a>(
        unit: Unit,
        k: usize,
        columns: usize,
        column: impl Fn(usize) -> Option<&'a [f32]> + Sync,
    ) -> Self {
        let (width, dtype) = (unit.panel(), unit.dtype());
        let (panels, length) = (columns.div_ceil(width), encode::words(unit, k));
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

    /// Bytes of `columns` packed columns of length `k`.
    pub(crate) fn bytes_of(unit: Unit, k: usize, columns: usize) -> usize {
        let (width, dtype) = (unit.panel(), unit.dtype());
        let (panels, start) = (columns.div_ceil(width), start(dtype));
        let words = panels * (start + encode::words(unit, k)) * width;
        Words::bytes(words) + start * panels * width * size_of::<f32>()
    }

    /// Inner dimension.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// The multiplier for these weights.
    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words.as_ref()) + size_of_val(self.scales.as_slice())
    }

    /// Number of packed columns, including padding.
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

    /// Words of a panel.
    pub(super) fn panel_words(&self) -> usize {
        (start(self.unit.dtype()) + self.length) * self.unit.panel()
    }

    /// Pointers to the start values of a panel's sums (if the dtype has them) and to the panel's
    /// words.
    pub(super) fn panel(&self, index: usize) -> (*const u32, *const u32) {
        assert!(index < self.panels, "panel {index} of {}", self.panels);
        let (width, start) = (self.unit.panel(), start(self.unit.dtype()));
        let at = index * self.panel_words();
        let words = &self.words.as_ref()[at..at + self.panel_words()];
        (words.as_ptr(), words[start * width..].as_ptr())
    }

    /// Scales of a panel's columns; `None` if the dtype has no scales.
    pub(super) fn scales(&self, panel: usize) -> Option<&[f32]> {
        let width = self.unit.panel();
        self.scales.get(panel * width..(panel + 1) * width)
    }
}

/// Number of rows of start values at the beginning of a panel.
fn start(dtype: WeightDtype) -> usize {
    usize::from(dtype == WeightDtype::Int8)
}
