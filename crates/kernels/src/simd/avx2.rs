//! AVX2 with FMA: eight `f32` lanes.

use super::Simd;
use std::arch::{asm, x86_64::*};

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn here() -> Self {
        Self(())
    }
}

impl Simd for Avx2 {
    type F = __m256;
    type D = __m256d;
    const LANES: usize = 8;
    // Twelve sums, two vectors of columns and a number of a row fill fifteen of sixteen registers.
    const TILE_ROWS: usize = 6;
    // Measured among 512 to 4,096 words.
    const NEAR: Option<usize> = Some(1024);

    intrinsics! {
        splat(x: f32) -> __m256 => _mm256_set1_ps(x);
        prefetch(p: *const u32) => _mm_prefetch::<_MM_HINT_T1>(p.cast());
        prefetch_once(p: *const u32) => _mm_prefetch::<_MM_HINT_NTA>(p.cast());
        prefetch_to_write(p: *const u32) => _mm_prefetch::<_MM_HINT_ET0>(p.cast());
        add(a: __m256, b: __m256) -> __m256 => _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 => _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 => _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 => _mm256_div_ps(a, b);
        max(a: __m256, b: __m256) -> __m256 => _mm256_max_ps(a, b);
        min(a: __m256, b: __m256) -> __m256 => _mm256_min_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 => _mm256_fmadd_ps(a, b, c);
        splat_d(x: f64) -> __m256d => _mm256_set1_pd(x);
        add_d(a: __m256d, b: __m256d) -> __m256d => _mm256_add_pd(a, b);
        sub_d(a: __m256d, b: __m256d) -> __m256d => _mm256_sub_pd(a, b);
        mul_d(a: __m256d, b: __m256d) -> __m256d => _mm256_mul_pd(a, b);
        max_d(a: __m256d, b: __m256d) -> __m256d => _mm256_max_pd(a, b);
        fma_d(a: __m256d, b: __m256d, c: __m256d) -> __m256d => _mm256_fmadd_pd(a, b, c);
    }
    unsafe_intrinsics! {
        load(p: *const f32) -> __m256 => _mm256_loadu_ps(p);
        store(p: *mut f32, x: __m256) => _mm256_storeu_ps(p, x);
        load_f16(p: *const u16) -> __m256 => _mm256_cvtph_ps(_mm_loadu_si128(p.cast()));
        load_bytes(p: *const i8) -> __m256 =>
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
        load_widen(p: *const f32) -> __m256d => _mm256_cvtps_pd(_mm_loadu_ps(p));
        store_d(p: *mut f64, x: __m256d) => _mm256_storeu_pd(p, x);
    }
    #[inline(always)]
    unsafe fn add_products(
        self,
        row: *const f32,
        index: usize,
        columns: [__m256; 2],
        sums: &mut [__m256; 2],
    ) {
        // SAFETY: `self` proves the instruction set; the rest is the caller's promise.
        unsafe { add_products(row, index, columns, sums) };
    }
    #[inline(always)]
    fn sum(self, x: __m256) -> f32 {
        safe!({
            let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest(self, x: __m256) -> f32 {
        safe!({
            let four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn exp2_biased(self, biased: __m256) -> __m256 {
        safe!({
            let exponent = _mm256_add_epi32(_mm256_castps_si256(biased), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u32, upper: bool) -> __m256 {
        safe!({
            let words = load_again(p);
            _mm256_castsi256_ps(if upper {
                _mm256_and_si256(words, _mm256_set1_epi32(!0xFFFF))
            } else {
                _mm256_slli_epi32::<16>(words)
            })
        })
    }

    #[inline(always)]
    unsafe fn load_halves(self, p: *const u16) -> __m256 {
        safe!({
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        })
    }
    #[inline(always)]
    fn exp2_biased_d(self, biased: __m256d) -> __m256d {
        safe!({
            let exponent = _mm256_add_epi64(_mm256_castpd_si256(biased), _mm256_set1_epi64x(1023));
            _mm256_castsi256_pd(_mm256_slli_epi64::<52>(exponent))
        })
    }
}

/// Defines a function of this name: a word of a row, read into all lanes of `x`, times the vectors `first`
/// and `second`, added to the sums `low` and `high` by the instructions that are given; further names are
/// registers for them. As intrinsics, the words of all rows of a tile would be loaded first, and sums would
/// be spilled.
macro_rules! define_add_products {
    (
        $(#[$doc:meta])*
        $visible:vis $name:ident, $vector:ty, $word:ty,
        [$($instruction:literal),+] $(, $register:ident)*
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Word `index` of `row` is readable.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        $visible unsafe fn $name(
            row: *const $word,
            index: usize,
            columns: [$vector; 2],
            sums: &mut [$vector; 2],
        ) {
            let ([first, second], [low, high]) = (columns, sums);
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vbroadcastss {x}, dword ptr [{row} + 4 * {index}]",
                    $($instruction,)+
                    x = out(ymm_reg) _,
                    $($register = out(ymm_reg) _,)*
                    row = in(reg) row,
                    index = in(reg) index,
                    first = in(ymm_reg) first,
                    second = in(ymm_reg) second,
                    low = inout(ymm_reg) *low,
                    high = inout(ymm_reg) *high,
                    options(nostack, readonly, preserves_flags),
                );
            }
        }
    };
}
pub(super) use define_add_products;

define_add_products!(
    /// A product of `f32`.
    add_products,
    __m256,
    f32,
    [
        "vfmadd231ps {low}, {x}, {first}",
        "vfmadd231ps {high}, {x}, {second}"
    ]
);

/// Eight words from memory, in every call: kept for the other number of each word, they would take
/// registers that sums need.
///
/// # Safety
/// The words are readable.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn load_again(p: *const u32) -> __m256i {
    let words;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vmovdqu {words}, ymmword ptr [{p}]",
            words = out(ymm_reg) words,
            p = in(reg) p,
            options(nostack, readonly, preserves_flags),
        );
    }
    words
}
