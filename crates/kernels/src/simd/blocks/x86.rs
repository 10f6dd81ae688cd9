//! AVX2, and AVX-512 with VNNI.

use super::integers::{Broadcast, Integers, products_by_broadcast};
use crate::simd::Simd;
use crate::simd::avx2::{Avx2, define_add_products};
use crate::simd::avx512::Avx512;
use crate::simd::bytes::add_pair_products;
use std::arch::x86_64::*;

/// Words with AVX2: sums products of codes in 16 bits. Codes of eight bits are multiplied in pairs of
/// every second byte as 16-bit integers, which cannot overflow; the words of a row hold such pairs.
#[derive(Clone, Copy)]
pub(super) struct Avx2Integers(Avx2);

impl Avx2Integers {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn here() -> Self {
        Self(Avx2::here())
    }
}

impl Integers for Avx2Integers {
    type S = Avx2;
    type I = __m256i;
    const TILE_ROWS: usize = 4;
    const NARROW: bool = true;
    const BYTE_PARTS: usize = 2;

    #[inline(always)]
    fn simd(self) -> Avx2 {
        self.0
    }
    intrinsics! {
        zero() -> __m256i => _mm256_setzero_si256();
        and(x: __m256i, mask: u32) -> __m256i =>
            _mm256_and_si256(x, _mm256_set1_epi32(mask.cast_signed()));
        or(x: __m256i, y: __m256i) -> __m256i => _mm256_or_si256(x, y);
        bytes(table: &[u8; 16], x: __m256i) -> __m256i =>
            _mm256_shuffle_epi8(
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())),
                x,
            );
        left(x: __m256i, bits: u32) -> __m256i =>
            _mm256_sllv_epi32(x, _mm256_set1_epi32(bits.cast_signed()));
        right(x: __m256i, bits: u32) -> __m256i =>
            _mm256_srlv_epi32(x, _mm256_set1_epi32(bits.cast_signed()));
        add_sums(few: __m256i, sum: __m256i) -> __m256i =>
            _mm256_add_epi32(sum, _mm256_madd_epi16(few, _mm256_set1_epi16(1)));
        floats(x: __m256i) -> __m256 => _mm256_cvtepi32_ps(x);
    }
    unsafe_intrinsics! {
        load(p: *const u32) -> __m256i => _mm256_loadu_si256(p.cast());
    }
    #[inline(always)]
    unsafe fn add_products(
        self,
        (row, index): (*const u32, usize),
        codes: [__m256i; 2],
        sums: &mut [__m256i; 2],
    ) {
        // SAFETY: `self` proves the instruction set; the rest is the caller's promise.
        unsafe { add_products(row, index, codes, sums) };
    }
    #[inline(always)]
    unsafe fn add_byte_products(
        self,
        (row, index): (*const u32, usize),
        codes: [__m256i; 2],
        sums: &mut [__m256i; 2],
    ) {
        // SAFETY: `self` proves the instruction set; the rest is the caller's promise.
        unsafe {
            let ([low, high], byte) = (codes, _mm256_set1_epi16(0xFF));
            let even = [_mm256_and_si256(low, byte), _mm256_and_si256(high, byte)];
            let odd = [_mm256_srli_epi16::<8>(low), _mm256_srli_epi16::<8>(high)];
            add_pair_products(row, index, even, sums);
            add_pair_products(row, index + 1, odd, sums);
        }
    }
    #[inline(always)]
    fn fused(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        self.0.fma(a, b, c)
    }
}

define_add_products!(
    /// Sums of two products of unsigned and signed bytes, in 16 bits.
    add_products,
    __m256i,
    u32,
    [
        "vpmaddubsw {products}, {first}, {x}",
        "vpaddw {low}, {low}, {products}",
        "vpmaddubsw {x}, {second}, {x}",
        "vpaddw {high}, {high}, {x}"
    ],
    products
);

/// Words with AVX-512 VNNI: four products per lane and instruction.
#[derive(Clone, Copy)]
pub(super) struct Avx512Integers(Avx512);

impl Avx512Integers {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
    pub(super) fn here() -> Self {
        Self(Avx512::here())
    }
}

impl Integers for Avx512Integers {
    type S = Avx512;
    type I = __m512i;
    // The integer sums of eight rows leave registers for codes and for a part of the sums in f32.
    const TILE_ROWS: usize = 8;

    #[inline(always)]
    fn simd(self) -> Avx512 {
        self.0
    }
    intrinsics! {
        zero() -> __m512i => _mm512_setzero_si512();
        and(x: __m512i, mask: u32) -> __m512i =>
            _mm512_and_si512(x, _mm512_set1_epi32(mask.cast_signed()));
        or(x: __m512i, y: __m512i) -> __m512i => _mm512_or_si512(x, y);
        bytes(table: &[u8; 16], x: __m512i) -> __m512i =>
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), x);
        left(x: __m512i, bits: u32) -> __m512i =>
            _mm512_sllv_epi32(x, _mm512_set1_epi32(bits.cast_signed()));
        right(x: __m512i, bits: u32) -> __m512i =>
            _mm512_srlv_epi32(x, _mm512_set1_epi32(bits.cast_signed()));
        add_sums(few: __m512i, sum: __m512i) -> __m512i => _mm512_add_epi32(sum, few);
        floats(x: __m512i) -> __m512 => _mm512_cvtepi32_ps(x);
    }
    unsafe_intrinsics! {
        load(p: *const u32) -> __m512i => _mm512_loadu_si512(p.cast());
    }
    products_by_broadcast!();
    #[inline(always)]
    fn fused(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.0.fma(a, b, c)
    }
}

impl Broadcast for Avx512Integers {
    type Row = __m512i;

    #[inline(always)]
    fn row(self, word: u32) -> __m512i {
        safe!(_mm512_set1_epi32(word.cast_signed()))
    }
    #[inline(always)]
    fn multiply(self, codes: __m512i, row: __m512i, sum: __m512i) -> __m512i {
        safe!(_mm512_dpbusd_epi32(sum, codes, row))
    }
}
