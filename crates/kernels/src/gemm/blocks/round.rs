//! Rounds numbers to codes of four bits.

use super::{Codes, group_codes, put};
use crate::gemm::encode::ROUND;
use crate::simd::blocks::GROUP;
use crate::simd::{Kernel, MAX_LANES, Simd, dispatch};
use half::f16;

/// The largest code.
const LARGEST: f32 = 15.0;
/// Shares of a group's range that are tried beside the whole: a smaller one rounds most weights less and
/// cuts the outermost.
const SHARES: [f32; 5] = [0.95, 0.9, 0.85, 0.8, 0.7];
/// Words of a group of codes, its scale and its minimum.
const STEP: usize = 5;

/// A vector for each weight of a group, of several groups.
type Groups<S> = [<S as Simd>::F; GROUP];
/// A number of each group.
type Lanes = [f32; MAX_LANES];

/// Rounds a column to codes of four bits. Of several ranges of a group, the one with the smallest
/// squared error is taken.
pub(crate) fn round_to_codes(x: &[f32], words: &mut [u32]) {
    dispatch(Round { x, words });
}

/// The numbers that a row of a matrix becomes in int4; its length is a multiple of 32.
pub fn row_in_codes(x: &[f32]) -> Vec<f32> {
    let mut words = vec![0; x.len() / GROUP * STEP];
    round_to_codes(x, &mut words);
    let groups = words.chunks_exact(STEP).flat_map(|step| {
        let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
        let (scale, minimum) = (half(step[0] & 0xFFFF), half(step[0] >> 16));
        group_codes(&step[1..]).map(|code| scale * f32::from(code) + minimum)
    });
    groups.collect()
}

/// Each lane of vectors has a group; sums have one order on all instruction sets.
struct Round<'a> {
    x: &'a [f32],
    words: &'a mut [u32],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let steps = self.words.chunks_mut(STEP * S::LANES);
        for (x, steps) in self.x.chunks(GROUP * S::LANES).zip(steps) {
            // Lanes without a group have zeros.
            let mut numbers = [[0.0; MAX_LANES]; GROUP];
            for (lane, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                for (numbers, x) in numbers.iter_mut().zip(x) {
                    numbers[lane] = *x;
                }
            }
            let mut x = [s.splat(0.0); GROUP];
            for i in 0..GROUP {
                x[i] = vector(s, &numbers[i]);
            }
            let best = fitted(s, &x);
            let affine = best.vectors(s);
            for i in 0..GROUP {
                numbers[i] = lanes(s, affine.code(s, x[i]));
            }
            for (lane, step) in steps.chunks_exact_mut(STEP).enumerate() {
                let mut bytes: Codes = [0; GROUP];
                for (byte, codes) in bytes.iter_mut().zip(&numbers) {
                    *byte = codes[lane] as u8;
                }
                let head = [best.scale[lane], best.minimum[lane]].map(f16::from_f32);
                put(&bytes, head, step);
            }
        }
    }
}

/// Folds the weights of groups in a fixed order: each half with the other, and so on. A macro, because a closure
/// over vectors that is not inlined is compiled without the instruction set.
macro_rules! folded {
    ($s:ident.$fold:ident($index:ident => $number:expr)) => {{
        let mut x = [$s.splat(0.0); GROUP / 2];
        for i in 0..GROUP / 2 {
            let $index = i;
            let first = $number;
            let $index = i + GROUP / 2;
            x[i] = $s.$fold(first, $number);
        }
        let mut width = GROUP / 4;
        while width > 0 {
            for i in 0..width {
                x[i] = $s.$fold(x[i], x[i + width]);
            }
            width /= 2;
        }
        x[0]
    }};
}

#[inline(always)]
fn vector<S: Simd>(s: S, lanes: &Lanes) -> S::F {
    // SAFETY: LANES <= MAX_LANES.
    unsafe { s.load(lanes.as_ptr()) }
}

#[inline(always)]
fn lanes<S: Simd>(s: S, vector: S::F) -> Lanes {
    let mut lanes = [0.0; MAX_LANES];
    // SAFETY: LANES <= MAX_LANES.
    unsafe { s.store(lanes.as_mut_ptr(), vector) };
    lanes
}

/// The best scale and minimum of each group.
#[inline(always)]
fn fitted<S: Simd>(s: S, x: &Groups<S>) -> Affine {
    let low = folded!(s.min(i => x[i]));
    let high = folded!(s.max(i => x[i]));
    let mean = s.mul(folded!(s.add(i => x[i])), s.splat(1.0 / GROUP as f32));
    let range = [lanes(s, low), lanes(s, high)];
    let mut best = Affine::of_range(range, 1.0).refined(s, x, mean);
    for share in SHARES {
        let other = Affine::of_range(range, share).refined(s, x, mean);
        best.replace(&other);
    }
    best.affine
}

/// The scale and the minimum of each group, numbers of 16 bits.
#[derive(Clone, Copy)]
struct Affine {
    scale: Lanes,
    minimum: Lanes,
}

/// A scale and a minimum with the sum of the squared errors of the nearest codes.
struct Fit {
    affine: Affine,
    error: Lanes,
}

impl Affine {
    /// The scale and the minimum of codes that span the middle `share` of a range.
    #[inline(always)]
    fn of_range([low, high]: [Lanes; 2], share: f32) -> Self {
        let mut all = Self { scale: [0.0; MAX_LANES], minimum: [0.0; MAX_LANES] };
        for lane in 0..MAX_LANES {
            let cut = 0.5 * (1.0 - share) * (high[lane] - low[lane]);
            all.scale[lane] = rounded_to_half((high[lane] - low[lane] - 2.0 * cut) / LARGEST);
            all.minimum[lane] = rounded_to_half(low[lane] + cut);
        }
        all
    }

    /// As vectors, with the inverse of the scale, 0 of no positive one.
    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S) -> Vectors<S> {
        let mut inverse = [0.0; MAX_LANES];
        for (inverse, scale) in inverse.iter_mut().zip(self.scale) {
            *inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        }
        let [scale, minimum, inverse] =
            [&self.scale, &self.minimum, &inverse].map(|lanes| vector(s, lanes));
        Vectors { scale, minimum, inverse }
    }

    /// This, or the scale and the minimum with the least squared error for the codes of this; `mean` is that
    /// of `x`.
    #[inline(always)]
    fn refined<S: Simd>(self, s: S, x: &Groups<S>, mean: S::F) -> Fit {
        let affine = self.vectors(s);
        let mut codes = [mean; GROUP];
        for i in 0..GROUP {
            codes[i] = affine.code(s, x[i]);
        }
        let error = folded!(s.add(i => affine.error(s, x[i], codes[i])));
        let mut fit = Fit { affine: self, error: lanes(s, error) };
        let middle = s.mul(folded!(s.add(i => codes[i])), s.splat(1.0 / GROUP as f32));
        let common = folded!(s.add(i => s.mul(s.sub(x[i], mean), s.sub(codes[i], middle))));
        let spread = folded!(s.add(i => {
            let distance = s.sub(codes[i], middle);
            s.mul(distance, distance)
        }));
        let (common, spread) = (lanes(s, common), lanes(s, spread));
        let (mean, middle) = (lanes(s, mean), lanes(s, middle));
        let mut other = self;
        for lane in 0..MAX_LANES {
            let scale = common[lane] / spread[lane];
            other.scale[lane] = rounded_to_half(scale);
            other.minimum[lane] = rounded_to_half(mean[lane] - scale * middle[lane]);
        }
        let affine = other.vectors(s);
        let error = folded!(s.add(i => affine.error(s, x[i], affine.code(s, x[i]))));
        let mut error = lanes(s, error);
        for lane in 0..MAX_LANES {
            let is_usable = common[lane] > 0.0
                && spread[lane] > 0.0
                && other.scale[lane] < f32::INFINITY
                && other.minimum[lane].abs() < f32::INFINITY;
            error[lane] = if is_usable { error[lane] } else { f32::INFINITY };
        }
        fit.replace(&Fit { affine: other, error });
        fit
    }
}

/// An [`Affine`] in vectors.
struct Vectors<S: Simd> {
    scale: S::F,
    minimum: S::F,
    inverse: S::F,
}

impl<S: Simd> Vectors<S> {
    /// The nearest codes, as numbers.
    #[inline(always)]
    fn code(&self, s: S, x: S::F) -> S::F {
        let code = s.mul(s.sub(x, self.minimum), self.inverse);
        let code = s.min(s.max(code, s.splat(0.0)), s.splat(LARGEST));
        s.sub(s.add(code, s.splat(ROUND)), s.splat(ROUND))
    }

    /// The squared errors of codes.
    #[inline(always)]
    fn error(&self, s: S, x: S::F, code: S::F) -> S::F {
        let error = s.sub(x, s.add(s.mul(self.scale, code), self.minimum));
        s.mul(error, error)
    }
}

impl Fit {
    /// Takes the lanes of another with a smaller error.
    #[inline(always)]
    fn replace(&mut self, other: &Self) {
        for lane in 0..MAX_LANES {
            let is_smaller = other.error[lane] < self.error[lane];
            let chosen = |own: f32, other: f32| if is_smaller { other } else { own };
            let (own, others) = (&mut self.affine, &other.affine);
            own.scale[lane] = chosen(own.scale[lane], others.scale[lane]);
            own.minimum[lane] = chosen(own.minimum[lane], others.minimum[lane]);
            self.error[lane] = chosen(self.error[lane], other.error[lane]);
        }
    }
}

/// The nearest number of 16 bits, of two the even one; infinity beyond the largest.
#[inline(always)]
fn rounded_to_half(x: f32) -> f32 {
    let bits = x.to_bits() & 0x7FFF_FFFF;
    let magnitude = f32::from_bits(bits);
    let normal = f32::from_bits((bits + 0x0FFF + (bits >> 13 & 1)) & !0x1FFF);
    let normal = if normal > 65_504.0 { f32::INFINITY } else { normal };
    // Denormal numbers of 16 bits are multiples of 2^-24, as numbers of f32 from 1/2 on are.
    let denormal = (magnitude + 0.5) - 0.5;
    let size = if magnitude < SMALLEST_NORMAL { denormal } else { normal };
    f32::from_bits(size.to_bits() | x.to_bits() & 0x8000_0000)
}

/// The smallest normal number of 16 bits.
const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;

#[cfg(test)]
mod tests {
    use super::rounded_to_half;
    use half::f16;

    #[test]
    fn halves_are_those_of_the_format() {
        let all = (0..0x7C00u16).map(|bits| f16::from_bits(bits).to_f32());
        let ends = [65_519.0, 65_520.0, 1e30, f32::INFINITY, 1e-8, 2f32.powi(-25), 2f32.powi(-26)];
        // The numbers, those in the middle of two, and their neighbours.
        let middle = (0..0x7BFFu16).map(|bits| {
            let number = |bits| f16::from_bits(bits).to_f32();
            (number(bits) + number(bits + 1)) / 2.0
        });
        for x in all.chain(middle).chain(ends) {
            for x in [x, x.next_up(), x.next_down()] {
                for x in [x, -x] {
                    let want = f16::from_f32(x).to_f32();
                    assert_eq!(rounded_to_half(x).to_bits(), want.to_bits(), "{x}");
                }
            }
        }
        assert!(rounded_to_half(f32::NAN).is_nan());
    }
}
