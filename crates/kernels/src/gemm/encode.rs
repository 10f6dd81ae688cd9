//! Rounds numbers to a dtype and packs them in words for the multipliers.
//!
//! The arithmetic is the same on every instruction set, so the encoding has the same bits everywhere.
//! A row's encoding depends only on the row.

use super::words::Scratch;
use crate::parallel::{self, Shared};
use crate::simd::amx;
use crate::simd::blocks::{Form, GROUP, INTEGERS, SCALE, SUMS, row_words};
use crate::simd::dot::PAIR_WORDS;
use crate::simd::unit::{Unit, WeightDtype};
use crate::simd::{Kernel, Simd, dispatch_on};
use std::ops::Range;

/// Largest magnitude of the 8-bit integers.
const LIMIT: f32 = 127.0;
/// A row's byte is its value plus this offset.
const OFFSET: i32 = 128;
/// A row or column with smaller magnitudes counts as zero: the inverse of its scale would overflow.
const SMALLEST: f32 = 1e-30;
/// `1.5 * 2^23`: adding it rounds to nearest even and leaves the whole number in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;
/// Rows at a distance of a multiple of this many words map to too few cache sets.
const CLASHING: usize = 512;

/// Number of steps for `k` numbers: words, pairs of words or steps of codes in groups. A tile unit takes
/// whole tiles, filled up with zeros.
pub(super) fn steps(unit: Unit, k: usize) -> usize {
    let words = match unit.dtype() {
        WeightDtype::F32 => k.div_ceil(unit.parts()),
        WeightDtype::Bf16 => k.div_ceil(2),
        WeightDtype::Int8 | WeightDtype::Int8w => k.div_ceil(4),
        WeightDtype::Int4 | WeightDtype::Blocks => {
            let groups = unit.form().map_or(1, Form::groups);
            return k.div_ceil(groups * GROUP);
        }
    };
    match unit.tiles() {
        Some(_) => words.next_multiple_of(amx::WORDS),
        None if unit.is_paired() => words.div_ceil(PAIR_WORDS),
        None => words,
    }
}

/// Number of rows in memory for `m` rows. Where a tile unit takes more than one tile of rows, the
/// last one is filled up with zeros.
fn padded(unit: Unit, m: usize) -> usize {
    match unit.tiles() {
        Some(_) if m > amx::ROWS => m.next_multiple_of(amx::ROWS),
        _ => m,
    }
}

/// Encoded rows of activations.
pub(super) struct Rows<'a> {
    words: RowWords<'a>,
    pub(super) stride: usize,
    /// One per row; empty if the dtype has no scales.
    pub(super) scales: Vec<f32>,
}

/// Where encoded rows are.
enum RowWords<'a> {
    /// Numbers that need no encoding.
    Given(&'a [u32]),
    Encoded(Scratch),
}

impl<'a> Rows<'a> {
    /// At least `[m, stride]`; a tile unit's last tile of rows and of words is filled up with zeros.
    pub(super) fn words(&self) -> &[u32] {
        match &self.words {
            RowWords::Given(words) => words,
            RowWords::Encoded(words) => words.as_ref(),
        }
    }

    /// Encodes `x [m, k]`.
    pub(super) fn new(unit: Unit, x: &'a [f32], k: usize) -> Self {
        let (m, dtype) = (x.len() / k, unit.dtype());
        let used = match unit.form() {
            Some(_) => k.div_ceil(GROUP) * row_words(unit.parts()),
            None if unit.is_paired() => steps(unit, k) * PAIR_WORDS,
            None => steps(unit, k) * unit.parts(),
        };
        let clashes = m > 1 && used.is_multiple_of(CLASHING);
        if dtype == WeightDtype::F32 && !clashes {
            return Self {
                // SAFETY: f32 and u32 have the same size and alignment, and any bits are a u32.
                words: RowWords::Given(unsafe {
                    std::slice::from_raw_parts(x.as_ptr().cast(), x.len())
                }),
                stride: k,
                scales: Vec::new(),
            };
        }
        // Rows of a tile unit are an odd number of cache lines apart: those of a tile are read together.
        let is_even = unit.tiles().is_some() && (used / amx::WORDS).is_multiple_of(2);
        let stride = if clashes || is_even { used + 16 } else { used };
        let mut scratch = Scratch::new(padded(unit, m) * stride);
        let words = &mut scratch.as_mut()[..padded(unit, m) * stride];
        words[m * stride..].fill(0);
        let mut scales = vec![0.0; if dtype == WeightDtype::Int8 { m } else { 0 }];
        let (shared, shared_scales) = (Shared::new(words), Shared::new(&mut scales));
        parallel::for_rows(m, x.len(), |Range { start, end }| {
            // SAFETY: tasks own disjoint rows.
            let (words, scales) = unsafe {
                let scales = match dtype {
                    WeightDtype::Int8 => shared_scales.slice(start, end - start),
                    _ => &mut [],
                };
                (shared.slice(start * stride, (end - start) * stride), scales)
            };
            let encode =
                Encode { dtype, parts: unit.parts(), x: &x[start * k..end * k], k, words, scales };
            dispatch_on(unit.set(), encode);
        });
        Self { words: RowWords::Encoded(scratch), stride, scales }
    }

    /// Scale of a row, 1 if the dtype has no scales.
    pub(super) fn scale(&self, row: usize) -> f32 {
        self.scales.get(row).copied().unwrap_or(1.0)
    }
}

/// Some rows on one thread.
struct Encode<'a> {
    dtype: WeightDtype,
    /// As [`Unit::parts`].
    parts: usize,
    x: &'a [f32],
    k: usize,
    words: &'a mut [u32],
    scales: &'a mut [f32],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.x.len() / self.k;
        let stride = self.words.len() / rows.max(1);
        let rows = self.x.chunks_exact(self.k);
        // A unit that the row's numbers fill in part would keep numbers of an earlier use.
        let filled = match self.dtype {
            WeightDtype::F32 => self.k,
            WeightDtype::Bf16 => self.k / 2 * self.parts,
            WeightDtype::Int8 | WeightDtype::Int8w => self.k / 4 * self.parts,
            WeightDtype::Int4 | WeightDtype::Blocks => self.k / GROUP * row_words(self.parts),
        };
        for (i, (x, words)) in rows.zip(self.words.chunks_exact_mut(stride)).enumerate() {
            words[filled..].fill(0);
            match self.dtype {
                WeightDtype::F32 => words.iter_mut().zip(x).for_each(|(w, x)| *w = x.to_bits()),
                WeightDtype::Bf16 if self.parts == 2 => words
                    .iter_mut()
                    .zip(x)
                    .for_each(|(word, &x)| *word = u32::from(to_bf16(x)) << 16),
                WeightDtype::Bf16 => round_to_bf16(x, words),
                WeightDtype::Int8 | WeightDtype::Int8w => {
                    let (scale, inverse) = scale(x);
                    let offset = ROUND.to_bits().wrapping_sub(OFFSET as u32);
                    let bytes = &mut words[..self.k.div_ceil(4)];
                    bytes[self.k / 4..].fill(0);
                    round_to_bytes(x, inverse, offset, bytes);
                    if self.parts == 2 {
                        split_bytes(&mut words[..2 * self.k.div_ceil(4)]);
                    }
                    self.scales[i] = scale;
                }
                WeightDtype::Int4 | WeightDtype::Blocks => {
                    let groups = words.chunks_exact_mut(row_words(self.parts));
                    for (x, words) in x.chunks(GROUP).zip(groups) {
                        round_group(x, &mut words[..row_words(1)]);
                        if self.parts == 2 {
                            split_signed_bytes(&mut words[INTEGERS..]);
                        }
                    }
                }
            }
        }
    }
}

/// Packs two numbers per word, rounded to nearest even; NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_bf16(x: &[f32], words: &mut [u32]) {
    // SAFETY: a word is two halves, which need no more alignment.
    let (_, halves, _) = unsafe { words.align_to_mut::<u16>() };
    for (half, &x) in halves.iter_mut().zip(x) {
        *half = to_bf16(x);
    }
}

/// The upper half of the bits, rounded to nearest even; NaN stays NaN.
#[inline(always)]
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    if x.is_nan() { 0x7FC0 } else { rounded as u16 }
}

/// Widens the bytes in the first half of `words` to 16 bits: of each word, bytes 0 and 2 come first,
/// then bytes 1 and 3.
#[inline(always)]
fn split_bytes(words: &mut [u32]) {
    for i in (0..words.len() / 2).rev() {
        let word = words[i];
        words[2 * i] = word & 0x00FF_00FF;
        words[2 * i + 1] = word >> 8 & 0x00FF_00FF;
    }
}

/// As [`split_bytes`]; the bytes are signed.
#[inline(always)]
fn split_signed_bytes(words: &mut [u32]) {
    split_bytes(words);
    // SAFETY: a word is two halves, which need no more alignment.
    let (_, halves, _) = unsafe { words.align_to_mut::<i16>() };
    for half in halves {
        *half = i16::from(*half as i8);
    }
}

/// The scale of the 8-bit integers for `x`, and its inverse. Both are zero for a row of zeros. The
/// scale of a row with a non-finite value is not finite.
#[inline(always)]
pub(crate) fn scale(x: &[f32]) -> (f32, f32) {
    // Compared as integers, magnitudes are in order and NaN is the largest.
    let largest = x.iter().map(|x| x.to_bits() & 0x7FFF_FFFF).max();
    let largest = f32::from_bits(largest.unwrap_or(0));
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / LIMIT, LIMIT / largest) }
}

/// Packs four numbers per word: the low byte of `x * inverse` rounded to nearest even, minus the
/// integer whose float representation with [`ROUND`] has the bits `zero`.
#[inline(always)]
pub(super) fn round_to_bytes(x: &[f32], inverse: f32, zero: u32, words: &mut [u32]) {
    // SAFETY: a word is four bytes.
    let (_, bytes, _) = unsafe { words.align_to_mut::<u8>() };
    for (byte, &x) in bytes.iter_mut().zip(x) {
        *byte = (x * inverse + ROUND).to_bits().wrapping_sub(zero) as u8;
    }
}

/// Encodes a group of a row for products with codes.
#[inline(always)]
fn round_group(x: &[f32], words: &mut [u32]) {
    let (scale, inverse) = scale(x);
    let (facts, integers) = words.split_at_mut(INTEGERS);
    round_to_bytes(x, inverse, ROUND.to_bits(), integers);
    // SAFETY: a word is four bytes.
    let (_, bytes, _) = unsafe { integers.align_to::<i8>() };
    let sum = |bytes: &[i8]| bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>();
    let (first, last) = bytes.split_at(GROUP / 2);
    let sums = [sum(first), sum(last)];
    facts[SCALE] = scale.to_bits();
    for (place, sum) in SUMS.into_iter().zip([sums[0] + sums[1], sums[0], sums[1]]) {
        facts[place] = (scale * sum as f32).to_bits();
    }
}

/// A row of a matrix rounded to int8: its bytes and their scale.
pub fn row_to_bytes(x: &[f32]) -> (Vec<i8>, f32) {
    let mut words = vec![0; x.len().div_ceil(4)];
    let (scale, _) = column_to_bytes(x, &mut words);
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    (bytes.take(x.len()).map(u8::cast_signed).collect(), scale)
}

/// Encodes a column as signed bytes. Returns their scale and the start value of sums over unsigned
/// rows.
pub(super) fn column_to_bytes(x: &[f32], words: &mut [u32]) -> (f32, u32) {
    let (scale, inverse) = scale(x);
    round_to_bytes(x, inverse, ROUND.to_bits(), words);
    // SAFETY: a word is four bytes.
    let (_, bytes, _) = unsafe { words.align_to::<i8>() };
    let sum: i32 = bytes.iter().map(|&byte| i32::from(byte)).sum();
    (scale, (-OFFSET * sum).cast_unsigned())
}
