//! NEON: eight `f32` lanes in two registers, so that a row's number is loaded once for four vectors
//! of columns.
//!
//! The instructions of the extensions `dotprod`, `bf16` and `i8mm` are not stable in Rust, so
//! [`instructions`] has them as inline assembly.

mod bytes;
mod instructions;
mod pairs;

use super::Simd;
pub(super) use bytes::{DotBytes, NeonBytes};
pub(in crate::simd) use instructions::{sdot, usdot};
pub(crate) use pairs::{Bf16Pairs, BytePairs, Paired, Pairs};
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that the processor has NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon")]
    pub(super) fn here() -> Self {
        Self(())
    }
}

/// The first operand where it is larger, as on x86-64: where one is NaN, the second.
#[inline(always)]
fn larger(_: Neon, a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the token proves the instruction set.
    unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
}

impl Simd for Neon {
    type F = [float32x4_t; 2];
    type D = [float64x2_t; 2];
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    intrinsics! {
        splat(x: f32) -> Self::F => [vdupq_n_f32(x); 2];
        prefetch_to_write(p: *const u32) =>
            asm!("prfm pstl1keep, [{}]", in(reg) p, options(nostack, readonly, preserves_flags));
        add(a: Self::F, b: Self::F) -> Self::F => [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])];
        sub(a: Self::F, b: Self::F) -> Self::F => [vsubq_f32(a[0], b[0]), vsubq_f32(a[1], b[1])];
        mul(a: Self::F, b: Self::F) -> Self::F => [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])];
        div(a: Self::F, b: Self::F) -> Self::F => [vdivq_f32(a[0], b[0]), vdivq_f32(a[1], b[1])];
        fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F =>
            [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])];
        sum(x: Self::F) -> f32 => vaddvq_f32(vaddq_f32(x[0], x[1]));
        splat_d(x: f64) -> Self::D => [vdupq_n_f64(x); 2];
        add_d(a: Self::D, b: Self::D) -> Self::D => [vaddq_f64(a[0], b[0]), vaddq_f64(a[1], b[1])];
        sub_d(a: Self::D, b: Self::D) -> Self::D => [vsubq_f64(a[0], b[0]), vsubq_f64(a[1], b[1])];
        mul_d(a: Self::D, b: Self::D) -> Self::D => [vmulq_f64(a[0], b[0]), vmulq_f64(a[1], b[1])];
        fma_d(a: Self::D, b: Self::D, c: Self::D) -> Self::D =>
            [vfmaq_f64(c[0], a[0], b[0]), vfmaq_f64(c[1], a[1], b[1])];
    }
    unsafe_intrinsics! {
        load(p: *const f32) -> Self::F => [vld1q_f32(p), vld1q_f32(p.add(4))];
    }
    #[inline(always)]
    fn prefetch(self, p: *const u32) {
        // The intrinsic is not stable.
        safe!(asm!("prfm pldl2keep, [{}]", in(reg) p, options(nostack, readonly, preserves_flags)));
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: Self::F) {
        safe!({
            vst1q_f32(p, x[0]);
            vst1q_f32(p.add(4), x[1]);
        });
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        [larger(self, a[0], b[0]), larger(self, a[1], b[1])]
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        safe!([
            vbslq_f32(vcltq_f32(a[0], b[0]), a[0], b[0]),
            vbslq_f32(vcltq_f32(a[1], b[1]), a[1], b[1]),
        ])
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        // The larger of a number and NaN is the number.
        safe!(vmaxnmvq_f32(larger(self, x[0], x[1])))
    }
    #[inline(always)]
    fn exp2_biased(self, biased: Self::F) -> Self::F {
        safe!({
            let bias = vdupq_n_s32(127);
            let low = vaddq_s32(vreinterpretq_s32_f32(biased[0]), bias);
            let high = vaddq_s32(vreinterpretq_s32_f32(biased[1]), bias);
            [
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(low)),
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(high)),
            ]
        })
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        safe!({
            let (low, high) = (vld1_u16(p), vld1_u16(p.add(4)));
            [vcvt_f32_f16(vreinterpret_f16_u16(low)), vcvt_f32_f16(vreinterpret_f16_u16(high))]
        })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u32, upper: bool) -> Self::F {
        safe!({
            let (low, high) = (vld1q_u32(p), vld1q_u32(p.add(4)));
            let mask = vdupq_n_u32(!0xFFFF);
            let [low, high] = match upper {
                true => [vandq_u32(low, mask), vandq_u32(high, mask)],
                false => [vshlq_n_u32::<16>(low), vshlq_n_u32::<16>(high)],
            };
            [vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)]
        })
    }

    #[inline(always)]
    unsafe fn load_widen(self, p: *const f32) -> Self::D {
        safe!({
            let four = vld1q_f32(p);
            [vcvt_f64_f32(vget_low_f32(four)), vcvt_high_f64_f32(four)]
        })
    }
    #[inline(always)]
    unsafe fn store_d(self, p: *mut f64, x: Self::D) {
        safe!({
            vst1q_f64(p, x[0]);
            vst1q_f64(p.add(2), x[1]);
        });
    }
    #[inline(always)]
    fn max_d(self, a: Self::D, b: Self::D) -> Self::D {
        safe!([
            vbslq_f64(vcgtq_f64(a[0], b[0]), a[0], b[0]),
            vbslq_f64(vcgtq_f64(a[1], b[1]), a[1], b[1]),
        ])
    }
    #[inline(always)]
    fn exp2_biased_d(self, biased: Self::D) -> Self::D {
        safe!({
            let bias = vdupq_n_s64(1023);
            let low = vaddq_s64(vreinterpretq_s64_f64(biased[0]), bias);
            let high = vaddq_s64(vreinterpretq_s64_f64(biased[1]), bias);
            [
                vreinterpretq_f64_s64(vshlq_n_s64::<52>(low)),
                vreinterpretq_f64_s64(vshlq_n_s64::<52>(high)),
            ]
        })
    }
}
