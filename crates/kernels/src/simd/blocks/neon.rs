//! NEON, alone and with `dotprod` and `i8mm`.

use super::integers::{Broadcast, Integers, products_by_broadcast};
use crate::simd::Simd;
use crate::simd::neon::{Neon, sdot, usdot};
use std::arch::aarch64::*;

/// The instructions that multiply codes.
pub(super) trait Products: Copy {
    /// As [`Broadcast::Row`].
    type Row: Copy;

    /// As [`Broadcast::row`].
    fn row(self, word: u32) -> Self::Row;
    /// As [`Broadcast::multiply`].
    fn multiply(self, codes: Words, row: Self::Row, sum: Sums) -> Sums;
    /// As [`Broadcast::multiply_bytes`].
    #[inline(always)]
    fn multiply_bytes(self, codes: Words, row: Self::Row, sum: Sums) -> Sums {
        self.multiply(codes, row, sum)
    }
}

/// Words of codes.
type Words = [uint32x4_t; 2];
/// Sums of products.
type Sums = [int32x4_t; 2];

/// Words in two registers.
#[derive(Clone, Copy)]
pub(super) struct NeonIntegers<P>(Neon, P);

/// Bytes widened to 16 bits, products of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Widened(());

/// Four products of signed bytes per lane and instruction.
#[derive(Clone, Copy)]
pub(super) struct Signed(());

/// Four products of unsigned and signed bytes per lane and instruction.
#[derive(Clone, Copy)]
pub(super) struct Mixed(());

impl NeonIntegers<Widened> {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon")]
    pub(super) fn widened() -> Self {
        Self(Neon::here(), Widened(()))
    }
}

impl NeonIntegers<Signed> {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn signed() -> Self {
        Self(Neon::here(), Signed(()))
    }
}

impl NeonIntegers<Mixed> {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    pub(super) fn mixed() -> Self {
        Self(Neon::here(), Mixed(()))
    }
}

impl Products for Widened {
    type Row = int16x4_t;

    #[inline(always)]
    fn row(self, word: u32) -> int16x4_t {
        safe!(vget_low_s16(vmovl_s8(vcreate_s8(word.into()))))
    }
    #[inline(always)]
    fn multiply(self, codes: Words, row: int16x4_t, [mut low, mut high]: Sums) -> Sums {
        safe!({
            let codes = codes.map(|words| vreinterpretq_u16_u32(words));
            let first = vuzp1q_u16(codes[0], codes[1]);
            let last = vuzp2q_u16(codes[0], codes[1]);
            let even = vdupq_n_u16(0xFF);
            let a = vreinterpretq_s16_u16(vandq_u16(first, even));
            let b = vreinterpretq_s16_u16(vshrq_n_u16::<8>(first));
            let c = vreinterpretq_s16_u16(vandq_u16(last, even));
            let d = vreinterpretq_s16_u16(vshrq_n_u16::<8>(last));
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
}

impl Products for Signed {
    /// The bytes, and 128 times their sum: what unsigned codes have more than signed ones.
    type Row = (uint32x4_t, int32x4_t);

    #[inline(always)]
    fn row(self, word: u32) -> Self::Row {
        safe!({
            let row = vdupq_n_u32(word);
            let half = vdupq_n_u32(0x4040_4040);
            (row, sdot(sdot(vdupq_n_s32(0), half, row), half, row))
        })
    }
    #[inline(always)]
    fn multiply(self, codes: Words, (row, _): Self::Row, sum: Sums) -> Sums {
        safe!([sdot(sum[0], codes[0], row), sdot(sum[1], codes[1], row)])
    }
    #[inline(always)]
    fn multiply_bytes(self, codes: Words, (row, more): Self::Row, sum: Sums) -> Sums {
        safe!({
            let sign = vdupq_n_u32(0x8080_8080);
            let (low, high) = (veorq_u32(codes[0], sign), veorq_u32(codes[1], sign));
            [sdot(vaddq_s32(sum[0], more), low, row), sdot(vaddq_s32(sum[1], more), high, row)]
        })
    }
}

impl Products for Mixed {
    type Row = uint32x4_t;

    #[inline(always)]
    fn row(self, word: u32) -> uint32x4_t {
        safe!(vdupq_n_u32(word))
    }
    #[inline(always)]
    fn multiply(self, codes: Words, row: uint32x4_t, sum: Sums) -> Sums {
        safe!([usdot(sum[0], codes[0], row), usdot(sum[1], codes[1], row)])
    }
}

impl<P: Products> Integers for NeonIntegers<P> {
    type S = Neon;
    type I = Words;
    // The integer sums of four rows leave registers for codes and for a part of the sums in f32.
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }
    intrinsics! {
        zero() -> Words => [vdupq_n_u32(0); 2];
        or(x: Words, y: Words) -> Words => [vorrq_u32(x[0], y[0]), vorrq_u32(x[1], y[1])];
        add_sums(few: Words, sum: Words) -> Words =>
            [vaddq_u32(sum[0], few[0]), vaddq_u32(sum[1], few[1])];
    }
    unsafe_intrinsics! {
        load(p: *const u32) -> Words => [vld1q_u32(p), vld1q_u32(p.add(4))];
    }
    #[inline(always)]
    fn and(self, x: Words, mask: u32) -> Words {
        safe!({
            let mask = vdupq_n_u32(mask);
            [vandq_u32(x[0], mask), vandq_u32(x[1], mask)]
        })
    }
    #[inline(always)]
    fn bytes(self, table: &[u8; 16], x: Words) -> Words {
        safe!({
            let table = vld1q_u8(table.as_ptr());
            x.map(|x| vreinterpretq_u32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(x))))
        })
    }
    #[inline(always)]
    fn left(self, x: Words, bits: u32) -> Words {
        safe!({
            let bits = vdupq_n_s32(bits.cast_signed());
            [vshlq_u32(x[0], bits), vshlq_u32(x[1], bits)]
        })
    }
    #[inline(always)]
    fn right(self, x: Words, bits: u32) -> Words {
        // A shift to the left by a negative number is one to the right.
        safe!({
            let bits = vdupq_n_s32(-bits.cast_signed());
            [vshlq_u32(x[0], bits), vshlq_u32(x[1], bits)]
        })
    }
    products_by_broadcast!();
    #[inline(always)]
    fn floats(self, x: Words) -> [float32x4_t; 2] {
        let [low, high] = sums(self.0, x);
        safe!([vcvtq_f32_s32(low), vcvtq_f32_s32(high)])
    }
    #[inline(always)]
    fn fused(
        self,
        a: [float32x4_t; 2],
        b: [float32x4_t; 2],
        c: [float32x4_t; 2],
    ) -> [float32x4_t; 2] {
        self.0.fma(a, b, c)
    }
}

impl<P: Products> Broadcast for NeonIntegers<P> {
    type Row = P::Row;

    #[inline(always)]
    fn row(self, word: u32) -> P::Row {
        self.1.row(word)
    }
    #[inline(always)]
    fn multiply(self, codes: Words, row: P::Row, sum: Words) -> Words {
        bits(self.0, self.1.multiply(codes, row, sums(self.0, sum)))
    }
    #[inline(always)]
    fn multiply_bytes(self, codes: Words, row: P::Row, sum: Words) -> Words {
        bits(self.0, self.1.multiply_bytes(codes, row, sums(self.0, sum)))
    }
}

/// Words as signed sums.
#[inline(always)]
fn sums(_: Neon, x: Words) -> Sums {
    // SAFETY: the token proves the instruction set.
    unsafe { [vreinterpretq_s32_u32(x[0]), vreinterpretq_s32_u32(x[1])] }
}

/// Signed sums as words.
#[inline(always)]
fn bits(_: Neon, x: Sums) -> Words {
    // SAFETY: as above.
    unsafe { [vreinterpretq_u32_s32(x[0]), vreinterpretq_u32_s32(x[1])] }
}
