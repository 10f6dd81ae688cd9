//! Makes bf16 weights of 8-bit floats, a panel at a time.
//!
//! A panel of 8-bit floats holds, for each 32 inner elements, a scale in f32 of each column, then eight rows
//! of words with four codes of each. A weight is the product of code and scale, rounded to bf16, so a product has
//! the bits of one with these weights in bf16. Rows of inputs share the work.

use super::packed::Packed;
use super::words::Words;
use crate::simd::amx::Tiles;
use crate::simd::blocks::{Form, GROUP};
use crate::simd::unit::Unit;
use crate::simd::{Kernel, Simd, dispatch_on, dispatch_pairs};

/// Words of a column with 32 weights in bf16.
const WIDE: usize = GROUP / 2;

/// A panel in bf16.
pub(super) struct Panel(Packed);

impl Panel {
    /// Memory for a panel of `narrow`.
    pub(super) fn new(narrow: &Packed) -> Self {
        let words = Words::borrow(narrow.k() / 2 * narrow.unit().panel());
        Self(narrow.panel_in(words))
    }

    /// The weights of panel `index` of `narrow`.
    pub(super) fn widen(&mut self, narrow: &Packed, index: usize) -> &Packed {
        let unit = narrow.unit();
        let widen = Widen {
            narrow: narrow.panel_slice(index),
            wide: self.0.words.as_mut(),
            width: unit.panel(),
            is_paired: unit.is_paired(),
        };
        match unit {
            // Their products have no denormal numbers.
            Unit::Avx512Bf16 | Unit::AmxBf16(Tiles::Processor) => dispatch_pairs(widen),
            _ => dispatch_on(unit.set(), widen),
        }
        &self.0
    }
}

impl Drop for Panel {
    fn drop(&mut self) {
        std::mem::replace(&mut self.0.words, Words::zeros(0)).give_back();
    }
}

struct Widen<'a> {
    narrow: &'a [u32],
    wide: &'a mut [u32],
    /// Columns.
    width: usize,
    /// True if two words of a column are neighbours.
    is_paired: bool,
}

impl Kernel for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let width = self.width;
        let narrow = self.narrow.chunks_exact(Form::Fp8.column() * width);
        for (group, wide) in narrow.zip(self.wide.chunks_exact_mut(WIDE * width)) {
            let (scales, codes) = group.split_at(width);
            for (codes, wide) in codes.chunks_exact(width).zip(wide.chunks_exact_mut(2 * width)) {
                let of_lanes = scales.as_chunks().0.iter().zip(codes.as_chunks().0);
                if self.is_paired {
                    let wide = wide.as_chunks_mut::<{ 2 * LANES }>().0;
                    for ((scales, codes), wide) in of_lanes.zip(wide) {
                        let [first, last] = widened(simd, scales, codes);
                        for lane in 0..LANES {
                            wide[2 * lane] = first[lane];
                            wide[2 * lane + 1] = last[lane];
                        }
                    }
                } else {
                    let (first, last) = wide.split_at_mut(width);
                    let wide = first.as_chunks_mut().0.iter_mut().zip(last.as_chunks_mut().0);
                    for ((scales, codes), (first, last)) in of_lanes.zip(wide) {
                        [*first, *last] = widened(simd, scales, codes);
                    }
                }
            }
        }
    }
}

/// Columns that are widened together, in vectors of any width.
const LANES: usize = 16;

/// A word of each column.
type Lanes = [u32; LANES];

/// Two words of weights of each column: those of its word of codes.
#[inline(always)]
fn widened<S: Simd>(simd: S, scales: &Lanes, codes: &Lanes) -> [Lanes; 2] {
    [pairs::<S, 0>(simd, scales, codes), pairs::<S, 2>(simd, scales, codes)]
}

/// The weights of the codes in bytes `BYTE` and `BYTE + 1`.
#[inline(always)]
fn pairs<S: Simd, const BYTE: u32>(simd: S, scales: &Lanes, codes: &Lanes) -> Lanes {
    let (mut low, mut high, mut words) = ([0.0; LANES], [0.0; LANES], [0; LANES]);
    for lane in 0..LANES {
        // Exact, because the scale is below 128.
        let scale = f32::from_bits(scales[lane]) * f32::from_bits(247 << 23);
        low[lane] = tiny(codes[lane] << (24 - 8 * BYTE)) * scale;
        high[lane] = tiny(codes[lane] << (16 - 8 * BYTE)) * scale;
    }
    if const { S::PAIRS && S::LANES == LANES } {
        // SAFETY: the arrays are a vector each.
        unsafe {
            let pairs = simd.pair(simd.load(low.as_ptr()), simd.load(high.as_ptr()));
            simd.store(words.as_mut_ptr().cast(), pairs);
        }
        return words;
    }
    for lane in 0..LANES {
        words[lane] = rounded(low[lane]) >> 16 | rounded(high[lane]) & 0xFFFF_0000;
    }
    words
}

/// The 8-bit float (E4M3) in the high byte of a word, without NaN, times 2^-120: the bits of f32 have an exponent
/// that is 120 more.
#[inline(always)]
fn tiny(word: u32) -> f32 {
    // Bits between the sign and the exponent are copies of the sign.
    f32::from_bits((word.cast_signed() >> 4).cast_unsigned() & 0x87F0_0000)
}

/// The bits of a number, rounded to bf16 (to nearest even), in the high half.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    bits + 0x7FFF + (bits >> 16 & 1)
}

#[cfg(test)]
mod tests {
    use super::{rounded, tiny};
    use crate::blocks::float8;
    use half::bf16;

    #[test]
    fn codes_are_8_bit_floats() {
        for code in (0..=255u8).filter(|code| code & 0x7F != 0x7F) {
            let number = tiny(u32::from(code) << 24) * f32::from_bits(247 << 23);
            assert_eq!(number.to_bits(), float8(code).to_bits(), "{code}");
        }
    }

    #[test]
    fn numbers_are_rounded_to_nearest_even() {
        for x in [1.0, 1.003_906_3, 1.003_906_2, 1.011_718_8, -3.1, 0.0, -0.0, 1e-40, 3e38] {
            assert_eq!(rounded(x) >> 16, u32::from(bf16::from_f32(x).to_bits()), "{x}");
        }
    }
}
