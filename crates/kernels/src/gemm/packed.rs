//! Weights packed in the order in which tiles read them.

use super::words::Words;
use super::{blocks, encode};
use crate::blocks::BlockType;
use crate::parallel::{self, Shared};
use crate::simd::blocks::{Form, GROUP};
use crate::simd::dot::PAIR_WORDS;
use crate::simd::unit::{Unit, WeightDtype};

/// A weight matrix `[n, k]` in panels of `2 * LANES` columns of the product. A panel holds, for each
/// word of the inner dimension, the words of its columns contiguously; the last panel is padded with
/// zeros. If sums do not start at zero, their start values come first in a panel. Codes in groups are
/// packed as `simd::blocks` describes, pairs of words as `simd::neon::pairs` does.
pub(crate) struct Packed {
    pub(super) words: Words,
    /// One per packed column; empty if the dtype has no scales.
    scales: Vec<f32>,
    packing: Packing,
    k: usize,
    /// Steps of a column.
    length: usize,
    panels: usize,
}

/// The multiplier of weights, and how they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    pub(crate) unit: Unit,
    /// True for 8-bit floats, which `super::widen` makes weights of, for a multiplier of bf16.
    pub(crate) is_fp8: bool,
}

impl From<Unit> for Packing {
    fn from(unit: Unit) -> Self {
        Self { unit, is_fp8: false }
    }
}

impl Packing {
    /// The multiplier of codes of a form: the fastest of this processor.
    pub(crate) fn detect_for(form: Form) -> Self {
        match form {
            Form::Fp8 => Self { unit: Unit::detect(WeightDtype::Bf16), is_fp8: true },
            form => Unit::detect_for(form).into(),
        }
    }

    /// Words of a column of length `k` behind its start value.
    fn words(self, k: usize) -> usize {
        match self.is_fp8 {
            true => k / GROUP * Form::Fp8.column(),
            false => encode::steps(self.unit, k) * column_words(self.unit),
        }
    }
}

/// One column to be packed.
#[derive(Clone, Copy)]
pub(crate) enum Column<'a> {
    /// Its weights.
    Floats(&'a [f32]),
    /// The blocks of a file.
    Blocks(BlockType, &'a [u8]),
}

impl Packed {
    /// Packs `columns` columns, including padding. `column(j)` is the weight row (length `k`) of
    /// packed column `j`, `None` for padding. Only codes in groups are packed from blocks.
    pub(crate) fn new<'a>(
        packing: impl Into<Packing>,
        k: usize,
        columns: usize,
        column: impl Fn(usize) -> Option<Column<'a>> + Sync,
    ) -> Self {
        let packing = packing.into();
        let Packing { unit, is_fp8 } = packing;
        let width = unit.panel();
        let (panels, length) = (columns.div_ceil(width), encode::steps(unit, k));
        let (start, words_of) = (start(unit.dtype()), packing.words(k));
        let per_panel = (start + words_of) * width;
        let mut words = Words::zeros(panels * per_panel);
        let scaled = if is_scaled(unit) { width } else { 0 };
        let mut scales = vec![0.0; scaled * panels];
        let (shared, shared_scales) = (Shared::new(words.as_mut()), Shared::new(&mut scales));
        parallel::for_each(panels, |panel| {
            // SAFETY: one task per panel.
            let (packed, scales) = unsafe {
                let scales = shared_scales.slice(panel * scaled, scaled);
                (shared.slice(panel * per_panel, per_panel), scales)
            };
            let mut encoded = vec![0u32; words_of];
            let columns = (0..width).filter_map(|lane| Some((lane, column(panel * width + lane)?)));
            for (lane, weights) in columns {
                let (first, scale) = encode_column(unit, weights, &mut encoded);
                if let Some(first) = first {
                    packed[lane] = first;
                }
                if let Some(stored) = scales.get_mut(lane) {
                    *stored = scale;
                }
                let rows = packed[start * width..].chunks_exact_mut(width);
                rows.zip(&encoded).for_each(|(row, &word)| row[lane] = word);
            }
            if unit.form().is_some() {
                let steps = packed.chunks_exact_mut(column_words(unit) * width);
                steps.for_each(|step| split_halves(&mut step[..width]));
            }
            if let Unit::WidenedF16(_) = unit {
                packed.chunks_exact_mut(width).for_each(split_halves);
            }
            if unit.is_paired() && !is_fp8 {
                let steps = packed[start * width..].chunks_exact_mut(PAIR_WORDS * width);
                steps.for_each(join_pairs);
            }
        });
        Self { words, scales, packing, k, length, panels }
    }

    /// Memory for a panel of these weights in the format of their multiplier, in `words`.
    pub(super) fn panel_in(&self, words: Words) -> Self {
        let (packing, scales) = (self.packing.unit.into(), Vec::new());
        Self { words, scales, packing, k: self.k, length: self.length, panels: 1 }
    }

    /// Bytes of `columns` packed columns of length `k`.
    pub(crate) fn bytes_of(packing: impl Into<Packing>, k: usize, columns: usize) -> usize {
        let packing = packing.into();
        let unit = packing.unit;
        let (width, start) = (unit.panel(), start(unit.dtype()));
        let panels = columns.div_ceil(width);
        let words = panels * (start + packing.words(k)) * width;
        Words::bytes(words) + usize::from(is_scaled(unit)) * panels * width * size_of::<f32>()
    }

    /// Inner dimension.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// The multiplier for these weights.
    pub(crate) fn unit(&self) -> Unit {
        self.packing.unit
    }

    /// True for 8-bit floats.
    pub(super) fn is_fp8(&self) -> bool {
        self.packing.is_fp8
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words.as_ref()) + size_of_val(self.scales.as_slice())
    }

    /// Number of packed columns, including padding.
    pub(super) fn columns(&self) -> usize {
        self.panels * self.packing.unit.panel()
    }

    pub(super) fn panels(&self) -> usize {
        self.panels
    }

    /// Steps of a column.
    pub(super) fn steps(&self) -> usize {
        self.length
    }

    /// Words of a panel.
    pub(super) fn panel_words(&self) -> usize {
        let unit = self.packing.unit;
        (start(unit.dtype()) + self.packing.words(self.k)) * unit.panel()
    }

    /// The words of a panel.
    pub(super) fn panel_slice(&self, index: usize) -> &[u32] {
        assert!(index < self.panels, "panel {index} of {}", self.panels);
        &self.words.as_ref()[index * self.panel_words()..][..self.panel_words()]
    }

    /// Pointers to the start values of a panel's sums (if the dtype has them) and to the panel's
    /// words.
    pub(super) fn panel(&self, index: usize) -> (*const u32, *const u32) {
        let unit = self.packing.unit;
        let (width, start) = (unit.panel(), start(unit.dtype()));
        let words = self.panel_slice(index);
        (words.as_ptr(), words[start * width..].as_ptr())
    }

    /// Scales of a panel's columns; `None` if the dtype has no scales.
    pub(super) fn scales(&self, panel: usize) -> Option<&[f32]> {
        let width = self.packing.unit.panel();
        self.scales.get(panel * width..(panel + 1) * width)
    }
}

/// True if columns have scales.
fn is_scaled(unit: Unit) -> bool {
    unit.dtype() == WeightDtype::Int8 || unit.form() == Some(Form::Nvfp4)
}

/// Number of rows of start values at the beginning of a panel.
fn start(dtype: WeightDtype) -> usize {
    usize::from(dtype == WeightDtype::Int8)
}

/// Words of a column in a step.
fn column_words(unit: Unit) -> usize {
    match unit.form() {
        Some(form) => form.column(),
        None if unit.is_paired() => PAIR_WORDS,
        None => 1,
    }
}

/// Encodes a column. Returns the start value of its sums, if the dtype has one, and its scale.
fn encode_column(unit: Unit, weights: Column<'_>, encoded: &mut [u32]) -> (Option<u32>, f32) {
    match (weights, unit.dtype()) {
        (Column::Blocks(kind, bytes), _) => {
            blocks::repack(kind, bytes, encoded);
            // Codes stand for twice the number.
            let half = if kind.form() == Form::Nvfp4 { 0.5 } else { 1.0 };
            return (None, half * kind.factor(bytes));
        }
        (Column::Floats(weights), WeightDtype::F32) => {
            let bits = encoded.iter_mut().zip(weights);
            bits.for_each(|(word, x)| *word = x.to_bits());
        }
        (Column::Floats(weights), WeightDtype::Bf16) => encode::round_to_bf16(weights, encoded),
        (Column::Floats(weights), WeightDtype::Int8 | WeightDtype::Int8w) => {
            let (scale, start) = encode::column_to_bytes(weights, encoded);
            return (Some(start), scale);
        }
        (Column::Floats(weights), WeightDtype::Int4 | WeightDtype::Blocks) => {
            blocks::round_to_codes(weights, encoded);
        }
    }
    (None, 1.0)
}

/// Reorders the halves of a row of words, such as scales and minimums: all low ones of the first half of the
/// columns, their high ones, and the same for the second half.
fn split_halves(row: &mut [u32]) {
    let lanes = row.len() / 2;
    for vector in row.chunks_exact_mut(lanes) {
        let halves = vector.iter().map(|word| word & 0xFFFF);
        let halves: Vec<u32> = halves.chain(vector.iter().map(|word| word >> 16)).collect();
        for (word, pair) in vector.iter_mut().zip(halves.chunks_exact(2)) {
            *word = pair[0] | pair[1] << 16;
        }
    }
}

/// Reorders the words of a step: those of a column become neighbours.
fn join_pairs(step: &mut [u32]) {
    let rows = step.to_vec();
    let (first, last) = rows.split_at(rows.len() / PAIR_WORDS);
    let columns = step.chunks_exact_mut(PAIR_WORDS);
    for (column, (first, last)) in columns.zip(first.iter().zip(last)) {
        column.copy_from_slice(&[*first, *last]);
    }
}
