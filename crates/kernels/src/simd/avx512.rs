//! AVX-512 F and DQ: sixteen `f32` lanes.

use super::Simd;
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F and DQ, and BW and BF16 if `PAIRS`.
#[derive(Clone, Copy)]
pub(super) struct Avx512Of<const PAIRS: bool>(());

/// AVX-512 F and DQ.
pub(super) type Avx512 = Avx512Of<false>;
/// AVX-512 F, BW, DQ and BF16.
pub(super) type Avx512Pairs = Avx512Of<true>;

impl Avx512 {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) fn here() -> Self {
        Self(())
    }
}

impl Avx512Pairs {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
    pub(super) fn here() -> Self {
        Self(())
    }
}

impl<const PAIRS: bool> Simd for Avx512Of<PAIRS> {
    type F = __m512;
    type D = __m512d;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 12;
    const PAIRS: bool = PAIRS;

    intrinsics! {
        splat(x: f32) -> __m512 => _mm512_set1_ps(x);
        prefetch(p: *const u32) => _mm_prefetch::<_MM_HINT_T1>(p.cast());
        prefetch_to_write(p: *const u32) => _mm_prefetch::<_MM_HINT_ET0>(p.cast());
        add(a: __m512, b: __m512) -> __m512 => _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 => _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 => _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 => _mm512_div_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 => _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 => _mm512_min_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 => _mm512_fmadd_ps(a, b, c);
        sum(x: __m512) -> f32 => _mm512_reduce_add_ps(x);
        largest(x: __m512) -> f32 => _mm512_reduce_max_ps(x);
        splat_d(x: f64) -> __m512d => _mm512_set1_pd(x);
        add_d(a: __m512d, b: __m512d) -> __m512d => _mm512_add_pd(a, b);
        sub_d(a: __m512d, b: __m512d) -> __m512d => _mm512_sub_pd(a, b);
        mul_d(a: __m512d, b: __m512d) -> __m512d => _mm512_mul_pd(a, b);
        max_d(a: __m512d, b: __m512d) -> __m512d => _mm512_max_pd(a, b);
        fma_d(a: __m512d, b: __m512d, c: __m512d) -> __m512d => _mm512_fmadd_pd(a, b, c);
    }
    unsafe_intrinsics! {
        load_f16(p: *const u16) -> __m512 => _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        load(p: *const f32) -> __m512 => _mm512_loadu_ps(p);
        store(p: *mut f32, x: __m512) => _mm512_storeu_ps(p, x);
        load_bytes(p: *const i8) -> __m512 =>
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())));
        load_widen(p: *const f32) -> __m512d => _mm512_cvtps_pd(_mm256_loadu_ps(p));
        store_d(p: *mut f64, x: __m512d) => _mm512_storeu_pd(p, x);
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
    unsafe fn load_halves(self, p: *const u16) -> __m512 {
        safe!({
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        })
    }
    #[inline(always)]
    unsafe fn zip_halves(self, low: *const u16, high: *const u16) -> __m512 {
        safe!({
            let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(low.cast()));
            let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(high.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32::<16>(high)))
        })
    }
    #[inline(always)]
    unsafe fn zip_bytes(self, low: *const i8, high: *const i8) -> __m512 {
        // As bf16 a byte is the upper half of its f32.
        safe!({
            let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(self.load_bytes(low)));
            let high = _mm512_castps_si512(self.load_bytes(high));
            let high = _mm512_and_si512(high, _mm512_set1_epi32(!0xFFFF));
            _mm512_castsi512_ps(_mm512_or_si512(low, high))
        })
    }
    #[inline(always)]
    fn pair(self, low: __m512, high: __m512) -> __m512 {
        if const { !PAIRS } {
            return low;
        }
        // The numbers of `low` come first in the result of the rounding.
        const ORDER: [u16; 32] = {
            let mut order = [0; 32];
            let mut lane = 0;
            while lane < 16 {
                order[2 * lane] = lane as u16;
                order[2 * lane + 1] = lane as u16 + 16;
                lane += 1;
            }
            order
        };
        // SAFETY: `self` proves the instruction set; all types are 512 bits.
        unsafe {
            let rounded = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, rounded))
        }
    }
    #[inline(always)]
    fn multiply_pairs(self, word: u32, pairs: __m512, sum: __m512) -> __m512 {
        if const { !PAIRS } {
            return sum;
        }
        // SAFETY: `self` proves the instruction set; all types are 512 bits.
        unsafe {
            let word =
                std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(word.cast_signed()));
            _mm512_dpbf16_ps(sum, word, std::mem::transmute::<__m512, __m512bh>(pairs))
        }
    }

    #[inline(always)]
    fn exp2_biased_d(self, biased: __m512d) -> __m512d {
        safe!({
            let exponent = _mm512_add_epi64(_mm512_castpd_si512(biased), _mm512_set1_epi64(1023));
            _mm512_castsi512_pd(_mm512_slli_epi64::<52>(exponent))
        })
    }
}
