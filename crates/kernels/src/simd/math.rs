//! Exponentials and reductions over vectors.

use super::{MAX_LANES, Simd};

/// `1.5 * 2^23`: adding it rounds an `f32` and leaves the whole number in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;
/// `1.5 * 2^52`, the same for `f64`.
const ROUND_D: f64 = 6_755_399_441_055_744.0;
/// ln 2 as a sum of two numbers: `LN2_HI` has trailing zero bits, so `n * LN2_HI` is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;
const LN2_HI_D: f64 = 0.693_147_180_369_123_8;
const LN2_LO_D: f64 = 1.908_214_929_270_587_7e-10;
/// Reciprocal factorials 1/7! .. 1/0!, highest power first.
const TAYLOR: [f32; 8] =
    [1.984_127e-4, 1.388_888_9e-3, 8.333_334e-3, 4.166_666_8e-2, 0.166_666_67, 0.5, 1.0, 1.0];
/// The smallest argument with a normal result.
const EXP_MIN: f32 = -87.0;
const EXP_MAX: f32 = 88.0;
const EXP_MIN_D: f64 = -708.0;

/// `e^x` within about 2 ulp; `x` is clamped to `-87..=88`.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The bound is the first operand: these instructions return their second operand if one is NaN.
    let x = s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x));
    let biased = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(biased, s.splat(ROUND));
    let r = s.fma(n, s.splat(-LN2_HI), x);
    let r = s.fma(n, s.splat(-LN2_LO), r);
    let mut poly = s.splat(TAYLOR[0]);
    for &c in &TAYLOR[1..] {
        poly = s.fma(poly, r, s.splat(c));
    }
    s.mul(poly, s.exp2_biased(biased))
}

/// `e^x` within about 2 ulp for `x <= 0`, which must be clamped with [`clamp_d`].
#[inline(always)]
pub(crate) fn exp_d<S: Simd>(s: S, x: S::D) -> S::D {
    let biased = s.fma_d(x, s.splat_d(std::f64::consts::LOG2_E), s.splat_d(ROUND_D));
    let n = s.sub_d(biased, s.splat_d(ROUND_D));
    let r = s.fma_d(n, s.splat_d(-LN2_HI_D), x);
    let r = s.fma_d(n, s.splat_d(-LN2_LO_D), r);
    // |r| <= ln(2) / 2: the 14th term is below 5e-18.
    let mut poly = s.splat_d(FACTORIALS[13]);
    for i in (0..13).rev() {
        poly = s.fma_d(poly, r, s.splat_d(FACTORIALS[i]));
    }
    s.mul_d(poly, s.exp2_biased_d(biased))
}

/// Clamps an argument of [`exp_d`] to at least -708; NaN stays NaN.
#[inline(always)]
pub(crate) fn clamp_d<S: Simd>(s: S, x: S::D) -> S::D {
    s.max_d(s.splat_d(EXP_MIN_D), x)
}

/// 1/i!
const FACTORIALS: [f64; 14] = {
    let mut inverse = [1.0; 14];
    let mut factorial = 1.0;
    let mut i = 1;
    while i < 14 {
        factorial *= i as f64;
        inverse[i] = 1.0 / factorial;
        i += 1;
    }
    inverse
};

/// Sum of the double-precision lanes, always in the same order.
#[inline(always)]
pub(crate) fn sum_d<S: Simd>(s: S, x: S::D) -> f64 {
    let mut lanes = [0.0f64; MAX_LANES / 2];
    // SAFETY: LANES / 2 <= MAX_LANES / 2.
    unsafe { s.store_d(lanes.as_mut_ptr(), x) };
    lanes.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::{InstructionSet, Kernel, MAX_LANES, Simd, dispatch_on};
    use super::{clamp_d, exp, exp_d};

    struct Exp<'a>(&'a [f32], &'a mut [f32], &'a mut [f64]);

    impl Kernel for Exp<'_> {
        type Output = (f32, f32);
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (f32, f32) {
            let mut last = s.splat(0.0);
            for i in (0..self.0.len()).step_by(MAX_LANES) {
                for j in (i..i + MAX_LANES).step_by(S::LANES) {
                    // SAFETY: the length is a multiple of MAX_LANES.
                    unsafe {
                        last = s.load(self.0[j..].as_ptr());
                        s.store(self.1[j..].as_mut_ptr(), exp(s, last));
                    }
                }
                for j in (i..i + MAX_LANES).step_by(S::LANES / 2) {
                    // SAFETY: as above.
                    unsafe {
                        let x = clamp_d(s, s.load_widen(self.0[j..].as_ptr()));
                        s.store_d(self.2[j..].as_mut_ptr(), exp_d(s, x));
                    }
                }
            }
            (s.sum(last), s.largest(last))
        }
    }

    #[test]
    fn exponentials_are_accurate_on_every_instruction_set() {
        let xs: Vec<f32> = (0..8000).map(|i| -85.0 + i as f32 * 0.0121).collect();
        for set in InstructionSet::available() {
            let (mut single, mut double) = (vec![0.0; 8000], vec![0.0; 8000]);
            let (total, largest) = dispatch_on(set, Exp(&xs, &mut single, &mut double));
            for i in 0..8000 {
                let exact = f64::from(xs[i]).exp();
                let error = (f64::from(single[i]) / exact - 1.0).abs();
                assert!(error < 3e-7, "{} e^{}: {error}", set.name(), xs[i]);
                let error = (double[i] / exact - 1.0).abs();
                assert!(error < 2e-15, "{} e^{} in f64: {error}", set.name(), xs[i]);
            }
            let lanes = set.panel() / 2;
            let tail = &xs[8000 - lanes..];
            assert!((total - tail.iter().sum::<f32>()).abs() < 1e-3);
            assert_eq!(largest, tail[lanes - 1]);
        }
    }
}
