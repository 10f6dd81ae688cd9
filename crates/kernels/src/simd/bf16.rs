//! AVX-512 BF16: two products per lane and instruction.

use super::Simd;
use super::avx512::Avx512;
use super::dot::{Dot, tile_rows};
use std::arch::x86_64::*;

/// `bf16` with `vdpbf16ps`, which adds the products of two indices in its own order and treats
/// denormal numbers as zero.
#[derive(Clone, Copy)]
pub(super) struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
    pub(super) fn here() -> Self {
        Self(Avx512::here())
    }
}

impl Dot for Avx512Bf16 {
    type S = Avx512;
    type Sum = __m512;
    type Row = __m512i;
    type Columns = __m512i;
    const PARTS: usize = 1;
    const TILE_ROWS: usize = tile_rows::<Avx512>();

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> __m512 {
        self.0.splat(0.0)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> __m512 {
        safe!(self.0.load(p.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: __m512) {
        safe!(self.0.store(p.cast(), sum));
    }
    #[inline(always)]
    fn row(self, word: u32, _: usize) -> __m512i {
        safe!(_mm512_set1_epi32(word.cast_signed()))
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, _: usize) -> __m512i {
        safe!(_mm512_loadu_si512(p.cast()))
    }
    #[inline(always)]
    fn multiply(self, row: __m512i, columns: __m512i, sum: __m512) -> __m512 {
        type Pairs = __m512bh;
        // SAFETY: `self` proves the instruction set; both types are 512 bits. `array::map` would be a call
        // in builds without optimization across crates.
        unsafe {
            let row = std::mem::transmute::<__m512i, Pairs>(row);
            let columns = std::mem::transmute::<__m512i, Pairs>(columns);
            _mm512_dpbf16_ps(sum, row, columns)
        }
    }
    #[inline(always)]
    fn value(self, sum: __m512, _: f32, _: __m512) -> __m512 {
        sum
    }
}
