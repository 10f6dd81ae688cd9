//! The target's baseline instructions.

use super::integers::{Broadcast, Integers, products_by_broadcast};
use crate::simd::Simd;
use crate::simd::portable::Portable;

/// Lanes of a vector.
const N: usize = Portable::LANES;

/// Words as plain arrays.
#[derive(Clone, Copy)]
pub(super) struct PortableIntegers;

impl Integers for PortableIntegers {
    type S = Portable;
    type I = [u32; N];
    // Each further height costs compile time, and few processors run this code.
    const TILE_ROWS: usize = 1;

    #[inline(always)]
    fn simd(self) -> Portable {
        Portable
    }
    #[inline(always)]
    fn zero(self) -> Self::I {
        [0; N]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { *p.cast() }
    }
    #[inline(always)]
    fn and(self, x: Self::I, mask: u32) -> Self::I {
        x.map(|x| x & mask)
    }
    #[inline(always)]
    fn or(self, x: Self::I, y: Self::I) -> Self::I {
        std::array::from_fn(|i| x[i] | y[i])
    }
    #[inline(always)]
    fn bytes(self, table: &[u8; 16], x: Self::I) -> Self::I {
        x.map(|x| u32::from_le_bytes(x.to_le_bytes().map(|byte| table[usize::from(byte)])))
    }
    #[inline(always)]
    fn left(self, x: Self::I, bits: u32) -> Self::I {
        x.map(|x| x << bits)
    }
    #[inline(always)]
    fn right(self, x: Self::I, bits: u32) -> Self::I {
        x.map(|x| x >> bits)
    }
    products_by_broadcast!();
    #[inline(always)]
    fn add_sums(self, few: Self::I, sum: Self::I) -> Self::I {
        std::array::from_fn(|i| sum[i].wrapping_add(few[i]))
    }
    #[inline(always)]
    fn floats(self, x: Self::I) -> [f32; N] {
        x.map(|x| x.cast_signed() as f32)
    }
    #[inline(always)]
    fn fused(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
}

impl Broadcast for PortableIntegers {
    type Row = [i32; 4];

    #[inline(always)]
    fn row(self, word: u32) -> [i32; 4] {
        word.to_le_bytes().map(|byte| i32::from(byte as i8))
    }
    #[inline(always)]
    fn multiply(self, codes: Self::I, row: [i32; 4], sum: Self::I) -> Self::I {
        std::array::from_fn(|i| {
            let [a, b, c, d] = codes[i].to_le_bytes().map(i32::from);
            let products = a * row[0] + b * row[1] + c * row[2] + d * row[3];
            sum[i].wrapping_add_signed(products)
        })
    }
}
