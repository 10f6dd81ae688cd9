//! Products of two rows and two columns: one instruction adds four dot products.
//!
//! A step is two words of a row and of a column: four `bf16` or eight bytes. In a packed panel the two
//! words of a column are neighbours, so a register holds two columns. Sums are rearranged only at the
//! beginning and at the end of an accumulation: two rows of two registers become four registers of
//! two rows and two columns.
//!
//! A sum does not depend on its place among the four, and every row uses these instructions, also one
//! that has no partner: it is its own.

use super::instructions::{bfmmla, usmmla};
use super::{Neon, bytes};
use crate::simd::Simd;
use crate::simd::dot::{Columns, Multiply, PAIR_WORDS, RowPointer};
use std::arch::aarch64::*;

/// The instruction of a dtype. A value proves that the processor has it.
pub(crate) trait Pairs: Copy {
    /// True if panels begin with start values of the sums.
    const STARTS: bool;

    /// The vectors.
    fn simd(self) -> Neon;
    /// A register of the same words.
    #[inline(always)]
    fn splat(self, word: u32) -> uint32x4_t {
        safe!(vdupq_n_u32(word))
    }
    /// Adds the products of two rows and two columns to sums: of the first row, then of the second.
    fn multiply(self, rows: uint32x4_t, columns: uint32x4_t, sum: uint32x4_t) -> uint32x4_t;
    /// As `Dot::value`.
    fn value(self, sum: [uint32x4_t; 2], row: f32, columns: [float32x4_t; 2]) -> [float32x4_t; 2];
}

/// `bf16` with `bf16`.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Pairs(Neon);

impl Bf16Pairs {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon,bf16")]
    pub(in crate::simd) fn here() -> Self {
        Self(Neon::here())
    }
}

impl Pairs for Bf16Pairs {
    const STARTS: bool = false;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn multiply(self, rows: uint32x4_t, columns: uint32x4_t, sum: uint32x4_t) -> uint32x4_t {
        safe!(vreinterpretq_u32_f32(bfmmla(vreinterpretq_f32_u32(sum), rows, columns)))
    }
    #[inline(always)]
    fn value(self, sum: [uint32x4_t; 2], _: f32, _: [float32x4_t; 2]) -> [float32x4_t; 2] {
        safe!([vreinterpretq_f32_u32(sum[0]), vreinterpretq_f32_u32(sum[1])])
    }
}

/// Eight-bit integers with `i8mm`.
#[derive(Clone, Copy)]
pub(crate) struct BytePairs(Neon);

impl BytePairs {
    /// The token; only callable where the instructions are enabled.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    pub(in crate::simd) fn here() -> Self {
        Self(Neon::here())
    }
}

impl Pairs for BytePairs {
    const STARTS: bool = true;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn multiply(self, rows: uint32x4_t, columns: uint32x4_t, sum: uint32x4_t) -> uint32x4_t {
        safe!(vreinterpretq_u32_s32(usmmla(vreinterpretq_s32_u32(sum), rows, columns)))
    }
    #[inline(always)]
    fn value(self, sum: [uint32x4_t; 2], row: f32, columns: [float32x4_t; 2]) -> [float32x4_t; 2] {
        let sum = safe!([vreinterpretq_s32_u32(sum[0]), vreinterpretq_s32_u32(sum[1])]);
        bytes::scaled(self.0, sum, row, columns)
    }
}

/// The multiplier of panels with these instructions.
#[derive(Clone, Copy)]
pub(crate) struct Paired<P>(pub(crate) P);

/// Registers of two rows: two columns each.
const REGISTERS: usize = 8;

/// The first halves of two registers, and their last halves.
#[inline(always)]
fn exchange(_: Neon, a: uint32x4_t, b: uint32x4_t) -> [uint32x4_t; 2] {
    // SAFETY: the token proves the instruction set.
    unsafe {
        let (a, b) = (vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b));
        [vreinterpretq_u32_u64(vzip1q_u64(a, b)), vreinterpretq_u32_u64(vzip2q_u64(a, b))]
    }
}

/// The partner of row `2 * pair` of `rows`: the next one, or itself.
const fn partner(pair: usize, rows: usize) -> usize {
    if 2 * pair + 1 < rows { 2 * pair + 1 } else { 2 * pair }
}

impl<P: Pairs> Multiply for Paired<P> {
    type S = Neon;
    type Sum = [uint32x4_t; 2];
    const TILE_ROWS: usize = Neon::TILE_ROWS;
    const STARTS: bool = P::STARTS;
    const ROW: usize = PAIR_WORDS;
    const COLUMN: usize = PAIR_WORDS;

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0.simd()
    }
    #[inline(always)]
    fn zero(self) -> Self::Sum {
        [self.0.splat(0); 2]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> Self::Sum {
        safe!([vld1q_u32(p), vld1q_u32(p.add(4))])
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: Self::Sum) {
        safe!({
            vst1q_u32(p, sum[0]);
            vst1q_u32(p.add(4), sum[1]);
        });
    }
    #[inline(always)]
    fn value(self, sum: Self::Sum, row: f32, columns: [float32x4_t; 2]) -> [float32x4_t; 2] {
        self.0.value(sum, row, columns)
    }

    #[inline(always)]
    unsafe fn accumulate<const R: usize>(
        self,
        tile: &mut [[Self::Sum; 2]; R],
        steps: usize,
        a: RowPointer,
        b: Columns,
    ) {
        let s = self.simd();
        // Only the first half is used: one for two rows.
        let mut sums = [[self.0.splat(0); REGISTERS]; R];
        for pair in 0..R.div_ceil(2) {
            let (first, last) = (tile[2 * pair], tile[partner(pair, R)]);
            for vector in 0..REGISTERS / 2 {
                let [low, high] =
                    exchange(s, first[vector / 2][vector % 2], last[vector / 2][vector % 2]);
                sums[pair][2 * vector] = low;
                sums[pair][2 * vector + 1] = high;
            }
        }
        let rows: [*const u32; R] = std::array::from_fn(|r| a.first.wrapping_add(r * a.stride));
        let (ahead, fetched) = b.ahead;
        for step in 0..steps {
            for line in (0..fetched).step_by(16) {
                s.prefetch(ahead.wrapping_add(step * fetched + line));
            }
            let mut x = [self.0.splat(0); R];
            for pair in 0..R.div_ceil(2) {
                let (first, last) = (rows[2 * pair], rows[partner(pair, R)]);
                // SAFETY: two words of each row, by the caller's promise.
                x[pair] = unsafe {
                    let first = vld1_u32(first.wrapping_add(PAIR_WORDS * step));
                    vcombine_u32(first, vld1_u32(last.wrapping_add(PAIR_WORDS * step)))
                };
            }
            let words = b.low.wrapping_add(PAIR_WORDS * step * b.stride);
            for vector in 0..REGISTERS {
                // SAFETY: two words of each of the columns, by the caller's promise.
                let columns = unsafe { vld1q_u32(words.wrapping_add(4 * vector)) };
                for pair in 0..R.div_ceil(2) {
                    sums[pair][vector] = self.0.multiply(x[pair], columns, sums[pair][vector]);
                }
            }
        }
        for pair in 0..R.div_ceil(2) {
            for vector in 0..REGISTERS / 2 {
                let [first, last] = exchange(s, sums[pair][2 * vector], sums[pair][2 * vector + 1]);
                // The partner comes first: it may be the same row.
                tile[partner(pair, R)][vector / 2][vector % 2] = last;
                tile[2 * pair][vector / 2][vector % 2] = first;
            }
        }
    }
}
