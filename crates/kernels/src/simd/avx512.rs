//! AVX-512 F and DQ: sixteen `f32` lanes.

use super::Simd;
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) fn here() -> Self {
        Self(())
    }
}

/// Wraps intrinsics: the token proves that they exist.
macro_rules! safe {
    ($e:expr) => {
        // SAFETY: `self` proves the instruction set; pointers are the caller's promise.
        unsafe { $e }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type D = __m512d;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        safe!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn prefetch(self, p: *const u32) {
        safe!(_mm_prefetch::<_MM_HINT_T1>(p.cast()));
    }
    #[inline(always)]
    fn prefetch_to_write(self, p: *const u32) {
        safe!(_mm_prefetch::<_MM_HINT_ET0>(p.cast()));
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        safe!(_mm512_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m512) {
        safe!(_mm512_storeu_ps(p, x));
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        safe!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        safe!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        safe!(_mm512_reduce_add_ps(x))
    }
    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        safe!(_mm512_reduce_max_ps(x))
    }
    #[inline(always)]
    fn exp2_biased(self, biased: __m512) -> __m512 {
        safe!({
            let exponent = _mm512_add_epi32(_mm512_castps_si512(biased), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u32, upper: bool) -> __m512 {
        safe!({
            let words = _mm512_loadu_si512(p.cast());
            _mm512_castsi512_ps(if upper {
                _mm512_and_si512(words, _mm512_set1_epi32(!0xFFFF))
            } else {
                _mm512_slli_epi32::<16>(words)
            })
        })
    }

    #[inline(always)]
    fn splat_d(self, x: f64) -> __m512d {
        safe!(_mm512_set1_pd(x))
    }
    #[inline(always)]
    unsafe fn load_widen(self, p: *const f32) -> __m512d {
        safe!(_mm512_cvtps_pd(_mm256_loadu_ps(p)))
    }
    #[inline(always)]
    unsafe fn store_d(self, p: *mut f64, x: __m512d) {
        safe!(_mm512_storeu_pd(p, x));
    }
    #[inline(always)]
    fn add_d(self, a: __m512d, b: __m512d) -> __m512d {
        safe!(_mm512_add_pd(a, b))
    }
    #[inline(always)]
    fn sub_d(self, a: __m512d, b: __m512d) -> __m512d {
        safe!(_mm512_sub_pd(a, b))
    }
    #[inline(always)]
    fn mul_d(self, a: __m512d, b: __m512d) -> __m512d {
        safe!(_mm512_mul_pd(a, b))
    }
    #[inline(always)]
    fn max_d(self, a: __m512d, b: __m512d) -> __m512d {
        safe!(_mm512_max_pd(a, b))
    }
    #[inline(always)]
    fn fma_d(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        safe!(_mm512_fmadd_pd(a, b, c))
    }
    #[inline(always)]
    fn exp2_biased_d(self, biased: __m512d) -> __m512d {
        safe!({
            let exponent = _mm512_add_epi64(_mm512_castpd_si512(biased), _mm512_set1_epi64(1023));
            _mm512_castsi512_pd(_mm512_slli_epi64::<52>(exponent))
        })
    }
}
