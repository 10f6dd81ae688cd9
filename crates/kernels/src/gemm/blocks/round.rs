//! Rounds numbers to codes of four bits.

use super::{Codes, group_codes, put};
use crate::gemm::encode::ROUND;
use crate::simd::blocks::GROUP;
use crate::simd::{Kernel, Simd, dispatch};
use half::f16;

/// The largest code.
const LARGEST: f32 = 15.0;
/// Shares of a group's range that are tried beside the whole: a smaller one rounds most weights less and
/// cuts the outermost.
const SHARES: [f32; 5] = [0.95, 0.9, 0.85, 0.8, 0.7];

type Group = [f32; GROUP];

/// Rounds a column to codes of four bits. Of several ranges of a group, the one with the smallest
/// squared error is taken.
pub(crate) fn round_to_codes(x: &[f32], words: &mut [u32]) {
    dispatch(Round { x, words });
}

/// The numbers that a row of a matrix becomes in int4; its length is a multiple of 32.
pub fn row_in_codes(x: &[f32]) -> Vec<f32> {
    let mut words = vec![0; x.len() / GROUP * 5];
    round_to_codes(x, &mut words);
    let groups = words.chunks_exact(5).flat_map(|step| {
        let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
        let (scale, minimum) = (half(step[0] & 0xFFFF), half(step[0] >> 16));
        group_codes(&step[1..]).map(|code| scale * f32::from(code) + minimum)
    });
    groups.collect()
}

/// The loops are compiled for each instruction set; sums have one order in all.
struct Round<'a> {
    x: &'a [f32],
    words: &'a mut [u32],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (x, step) in self.x.as_chunks().0.iter().zip(self.words.chunks_exact_mut(5)) {
            let (best, codes) = fitted(x);
            let mut bytes: Codes = [0; GROUP];
            for (byte, code) in bytes.iter_mut().zip(codes) {
                *byte = code as u8;
            }
            put(&bytes, [best.scale, best.minimum], step);
        }
    }
}

/// The best scale and minimum of a group, with the codes.
#[inline(always)]
fn fitted(x: &Group) -> (Affine, Group) {
    let low = folded(x, |a, b| if b < a { b } else { a });
    let high = folded(x, |a, b| if b > a { b } else { a });
    let mean = sum(|i| x[i]) / GROUP as f32;
    let tried = |share: f32| {
        let cut = 0.5 * (1.0 - share) * (high - low);
        let first = Affine::new((high - low - 2.0 * cut) / LARGEST, low + cut);
        first.refined(x, mean)
    };
    let mut best = tried(1.0);
    for share in SHARES {
        let other = tried(share);
        if other.2 < best.2 {
            best = other;
        }
    }
    (best.0, best.1)
}

/// The sum of a number for each weight: 16 sums of two, then halves.
#[inline(always)]
fn sum(number: impl Fn(usize) -> f32) -> f32 {
    folded(&group(number), |a, b| a + b)
}

/// A number for each weight, in a loop that vectors are made of.
#[inline(always)]
fn group(number: impl Fn(usize) -> f32) -> Group {
    let mut numbers = [0.0; GROUP];
    for (i, x) in numbers.iter_mut().enumerate() {
        *x = number(i);
    }
    numbers
}

/// Folds a group in a fixed order: each half with the other, and so on.
#[inline(always)]
fn folded(x: &Group, fold: impl Fn(f32, f32) -> f32) -> f32 {
    let mut x = *x;
    let mut width = GROUP / 2;
    while width > 0 {
        for i in 0..width {
            x[i] = fold(x[i], x[i + width]);
        }
        width /= 2;
    }
    x[0]
}

/// A scale and a minimum.
#[derive(Clone, Copy)]
struct Affine {
    scale: f16,
    minimum: f16,
}

impl Affine {
    #[inline(always)]
    fn new(scale: f32, minimum: f32) -> Self {
        Self { scale: f16::from_f32(scale), minimum: f16::from_f32(minimum) }
    }

    /// The nearest codes, as numbers, and the sum of the squared errors.
    #[inline(always)]
    fn rounded(self, x: &Group) -> (Group, f32) {
        let (scale, minimum) = (self.scale.to_f32(), self.minimum.to_f32());
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let code = |x: f32| {
            let code = (x - minimum) * inverse;
            let code = if code > 0.0 { code } else { 0.0 };
            let code = if code < LARGEST { code } else { LARGEST };
            code + ROUND - ROUND
        };
        let codes = group(|i| code(x[i]));
        let error = sum(|i| {
            let error = x[i] - (scale * codes[i] + minimum);
            error * error
        });
        (codes, error)
    }

    /// This, or the scale and the minimum with the least squared error for the codes of this, with
    /// codes and error; `mean` is that of `x`.
    #[inline(always)]
    fn refined(self, x: &Group, mean: f32) -> (Self, Group, f32) {
        let (codes, error) = self.rounded(x);
        let middle = sum(|i| codes[i]) / GROUP as f32;
        let common = sum(|i| (x[i] - mean) * (codes[i] - middle));
        let spread = sum(|i| (codes[i] - middle) * (codes[i] - middle));
        if spread == 0.0 || common <= 0.0 {
            return (self, codes, error);
        }
        let scale = common / spread;
        let other = Self::new(scale, mean - scale * middle);
        let is_finite = other.scale.is_finite() && other.minimum.is_finite();
        let (other_codes, smaller) = other.rounded(x);
        match is_finite && smaller < error {
            true => (other, other_codes, smaller),
            false => (self, codes, error),
        }
    }
}
