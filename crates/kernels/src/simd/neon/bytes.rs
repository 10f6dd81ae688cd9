//! Products of words of four bytes. The row's bytes are unsigned, the column's signed.

use super::{Neon, sdot};
use crate::simd::Simd;
use crate::simd::dot::Dot;
use std::arch::aarch64::*;

/// Eight-bit integers without extensions: bytes are widened to 16 bits, products have 32 bits.
#[derive(Clone, Copy)]
pub(in crate::simd) struct NeonBytes(pub(in crate::simd) Neon);

/// Eight-bit integers with `dotprod`: four products per lane and instruction. Both sides must be
/// signed, so a row loses its offset again, and sums start at zero.
#[derive(Clone, Copy)]
pub(in crate::simd) struct DotBytes(Neon);

impl DotBytes {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon,dotprod")]
    pub(in crate::simd) fn here() -> Self {
        Self(Neon::here())
    }
}

/// Words as sums.
#[inline(always)]
unsafe fn load(_: Neon, p: *const u32) -> [int32x4_t; 2] {
    // SAFETY: the token proves the instruction set; the pointer is the caller's promise.
    unsafe { [vld1q_s32(p.cast()), vld1q_s32(p.add(4).cast())] }
}

/// Sums as words.
#[inline(always)]
unsafe fn store(_: Neon, p: *mut u32, sum: [int32x4_t; 2]) {
    // SAFETY: as above.
    unsafe {
        vst1q_s32(p.cast(), sum[0]);
        vst1q_s32(p.add(4).cast(), sum[1]);
    }
}

/// Sums times scales, as [`Dot::value`].
#[inline(always)]
pub(super) fn scaled(
    s: Neon,
    sum: [int32x4_t; 2],
    row: f32,
    columns: [float32x4_t; 2],
) -> [float32x4_t; 2] {
    let scales = s.mul(s.splat(row), columns);
    // SAFETY: the token proves the instruction set.
    let sums = unsafe { [vcvtq_f32_s32(sum[0]), vcvtq_f32_s32(sum[1])] };
    s.mul(sums, scales)
}

/// The four bytes of each of eight words: the first bytes, the second ones, and so on.
#[inline(always)]
unsafe fn bytes(_: Neon, p: *const u32) -> [int16x8_t; 4] {
    // SAFETY: the token proves the instruction set; the pointer is the caller's promise.
    unsafe {
        let (low, high) = (vld1q_s16(p.cast()), vld1q_s16(p.add(4).cast()));
        let (first, last) = (vuzp1q_s16(low, high), vuzp2q_s16(low, high));
        [
            vshrq_n_s16::<8>(vshlq_n_s16::<8>(first)),
            vshrq_n_s16::<8>(first),
            vshrq_n_s16::<8>(vshlq_n_s16::<8>(last)),
            vshrq_n_s16::<8>(last),
        ]
    }
}

impl Dot for NeonBytes {
    type S = Neon;
    type Sum = [int32x4_t; 2];
    type Row = int16x4_t;
    type Columns = [int16x8_t; 4];
    const PARTS: usize = 1;
    const TILE_ROWS: usize = 4;
    const STARTS: bool = true;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> [int32x4_t; 2] {
        safe!([vdupq_n_s32(0); 2])
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> [int32x4_t; 2] {
        safe!(load(self.0, p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: [int32x4_t; 2]) {
        safe!(store(self.0, p, sum));
    }
    #[inline(always)]
    fn row(self, word: u32, _: usize) -> int16x4_t {
        safe!(vreinterpret_s16_u16(vget_low_u16(vmovl_u8(vcreate_u8(word.into())))))
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, _: usize) -> [int16x8_t; 4] {
        safe!(bytes(self.0, p))
    }
    #[inline(always)]
    fn multiply(
        self,
        row: int16x4_t,
        columns: [int16x8_t; 4],
        [mut low, mut high]: [int32x4_t; 2],
    ) -> [int32x4_t; 2] {
        let [a, b, c, d] = columns;
        safe!({
            low = vmlal_lane_s16::<0>(low, vget_low_s16(a), row);
            low = vmlal_lane_s16::<1>(low, vget_low_s16(b), row);
            low = vmlal_lane_s16::<2>(low, vget_low_s16(c), row);
            low = vmlal_lane_s16::<3>(low, vget_low_s16(d), row);
            high = vmlal_high_lane_s16::<0>(high, a, row);
            high = vmlal_high_lane_s16::<1>(high, b, row);
            high = vmlal_high_lane_s16::<2>(high, c, row);
            high = vmlal_high_lane_s16::<3>(high, d, row);
            [low, high]
        })
    }
    #[inline(always)]
    fn value(self, sum: [int32x4_t; 2], row: f32, columns: [float32x4_t; 2]) -> [float32x4_t; 2] {
        scaled(self.0, sum, row, columns)
    }
}

impl Dot for DotBytes {
    type S = Neon;
    type Sum = [int32x4_t; 2];
    type Row = uint32x4_t;
    type Columns = [uint32x4_t; 2];
    const PARTS: usize = 1;
    const TILE_ROWS: usize = Neon::TILE_ROWS;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> [int32x4_t; 2] {
        safe!([vdupq_n_s32(0); 2])
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> [int32x4_t; 2] {
        safe!(load(self.0, p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: [int32x4_t; 2]) {
        safe!(store(self.0, p, sum));
    }
    #[inline(always)]
    fn row(self, word: u32, _: usize) -> uint32x4_t {
        // Minus 128 in each byte.
        safe!(vdupq_n_u32(word ^ 0x8080_8080))
    }
    #[inline(always)]
    unsafe fn columns(self, p: *const u32, _: usize) -> [uint32x4_t; 2] {
        safe!([vld1q_u32(p), vld1q_u32(p.add(4))])
    }
    #[inline(always)]
    fn multiply(
        self,
        row: uint32x4_t,
        columns: [uint32x4_t; 2],
        sum: [int32x4_t; 2],
    ) -> [int32x4_t; 2] {
        safe!([sdot(sum[0], columns[0], row), sdot(sum[1], columns[1], row)])
    }
    #[inline(always)]
    fn value(self, sum: [int32x4_t; 2], row: f32, columns: [float32x4_t; 2]) -> [float32x4_t; 2] {
        scaled(self.0, sum, row, columns)
    }
}
