//! Rounding numbers to a dtype, as words that multipliers read.
//!
//! Plain arithmetic that every instruction set does alike: what is encoded has the same bits
//! everywhere, and a row's encoding depends on the row alone.

use crate::parallel::{self, Shared};
use crate::simd::unit::{Unit, WeightDtype};
use crate::simd::{Kernel, Simd, dispatch_on};
use std::borrow::Cow;
use std::ops::Range;

/// Largest magnitude of an 8-bit integer in use.
const LIMIT: f32 = 127.0;
/// What a byte of a row exceeds its value by.
const OFFSET: i32 = 128;
/// Below this a row or column counts as zero: the inverse of its scale would overflow.
const SMALLEST: f32 = 1e-30;
/// `1.5 * 2^23`: adding it rounds to a whole number, to nearest even, kept in the low bits.
const ROUND: f32 = 12_582_912.0;
/// Rows this many words apart, or a multiple of it, fall into too few cache sets.
const CLASHING: usize = 512;

/// Words of `k` numbers.
pub(super) fn words(dtype: WeightDtype, k: usize) -> usize {
    match dtype {
        WeightDtype::F32 => k,
        WeightDtype::Bf16 => k.div_ceil(2),
        WeightDtype::Int8 => k.div_ceil(4),
    }
}

/// Rows of activations in words.
pub(super) struct Rows<'a> {
    /// `[m, stride]`.
    pub(super) words: Cow<'a, [u32]>,
    pub(super) stride: usize,
    /// One per row, or none where the dtype has no scales.
    pub(super) scales: Vec<f32>,
}

impl<'a> Rows<'a> {
    /// Encodes `x [m, k]`.
    pub(super) fn new(unit: Unit, x: &'a [f32], k: usize) -> Self {
        let (m, dtype) = (x.len() / k, unit.dtype());
        let used = words(dtype, k);
        let clashes = m > 1 && used.is_multiple_of(CLASHING);
        if dtype == WeightDtype::F32 && !clashes {
            return Self {
                // SAFETY: f32 and u32 have the same size and alignment, and any bits are a u32.
                words: Cow::Borrowed(unsafe {
                    std::slice::from_raw_parts(x.as_ptr().cast(), x.len())
                }),
                stride: k,
                scales: Vec::new(),
            };
        }
        let stride = if clashes { used + 16 } else { used };
        let mut words = vec![0u32; m * stride];
        let mut scales = vec![0.0; if dtype == WeightDtype::Int8 { m } else { 0 }];
        let (shared, shared_scales) = (Shared::new(&mut words), Shared::new(&mut scales));
        parallel::for_rows(
            m,
            x.len(),
            |Range {
                 start: from,
                 end: to,
             }| {
                // SAFETY: tasks own disjoint rows.
                let (words, scales) = unsafe {
                    let scales = match dtype {
                        WeightDtype::Int8 => shared_scales.part(from, to - from),
                        _ => &mut [],
                    };
                    (shared.part(from * stride, (to - from) * stride), scales)
                };
                let encode = Encode {
                    dtype,
                    x: &x[from * k..to * k],
                    k,
                    words,
                    scales,
                };
                dispatch_on(unit.set(), encode);
            },
        );
        Self {
            words: Cow::Owned(words),
            stride,
            scales,
        }
    }

    /// Scale of a row, 1 where the dtype has none.
    pub(super) fn scale(&self, row: usize) -> f32 {
        self.scales.get(row).copied().unwrap_or(1.0)
    }
}

/// Some rows on one thread.
struct Encode<'a> {
    dtype: WeightDtype,
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
        for (i, (x, words)) in rows.zip(self.words.chunks_exact_mut(stride)).enumerate() {
            match self.dtype {
                WeightDtype::F32 => words.iter_mut().zip(x).for_each(|(w, x)| *w = x.to_bits()),
                WeightDtype::Bf16 => round_to_bf16(x, words),
                WeightDtype::Int8 => {
                    let (scale, inverse) = scale(x);
                    let offset = ROUND.to_bits().wrapping_sub(OFFSET as u32);
                    round_to_bytes(x, (inverse, offset), words);
                    self.scales[i] = scale;
                }
            }
        }
    }
}

/// Two to a word, rounded to nearest even; what is not a number stays so.
#[inline(always)]
pub(super) fn round_to_bf16(x: &[f32], words: &mut [u32]) {
    // SAFETY: a word is two halves, which need no more alignment.
    let (_, halves, _) = unsafe { words.align_to_mut::<u16>() };
    for (half, &x) in halves.iter_mut().zip(x) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
        *half = if x.is_nan() { 0x7FC0 } else { rounded as u16 };
    }
}

/// What one step of the 8-bit integers for `x` is worth, and its inverse. Both are zero for a
/// row of zeros; the scale of a row with a value that is not finite is not finite.
#[inline(always)]
pub(super) fn scale(x: &[f32]) -> (f32, f32) {
    // As integers, magnitudes are ordered, and what is not a number is the largest.
    let largest = x.iter().map(|x| x.to_bits() & 0x7FFF_FFFF).max();
    let largest = f32::from_bits(largest.unwrap_or(0));
    if largest < SMALLEST {
        (0.0, 0.0)
    } else {
        (largest / LIMIT, LIMIT / largest)
    }
}

/// Four to a word: the low byte of `x * inverse` rounded to nearest even, counted from the
/// integer whose bits in a float with [`ROUND`] are `zero`.
#[inline(always)]
pub(super) fn round_to_bytes(x: &[f32], (inverse, zero): (f32, u32), words: &mut [u32]) {
    // SAFETY: a word is four bytes.
    let (_, bytes, _) = unsafe { words.align_to_mut::<u8>() };
    for (byte, &x) in bytes.iter_mut().zip(x) {
        *byte = (x * inverse + ROUND).to_bits().wrapping_sub(zero) as u8;
    }
}

/// Signed bytes of a column, their scale, and what sums over unsigned rows start at.
pub(super) fn column_to_bytes(x: &[f32], words: &mut [u32]) -> (f32, u32) {
    let (scale, inverse) = scale(x);
    round_to_bytes(x, (inverse, ROUND.to_bits()), words);
    // SAFETY: a word is four bytes.
    let (_, bytes, _) = unsafe { words.align_to::<i8>() };
    let sum: i32 = bytes.iter().map(|&byte| i32::from(byte)).sum();
    (scale, (-OFFSET * sum).cast_unsigned())
}
