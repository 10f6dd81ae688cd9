//! The softmax of a row in f64, reduced to the sums for probabilities and entropy.

use crate::simd::{Kernel, MAX_LANES, Simd, dispatch, math};

/// The reduced softmax of a row.
pub(super) struct Softmax {
    max: f64,
    total: f64,
    /// In nats.
    pub(super) entropy: f64,
}

impl Softmax {
    /// The softmax of the logits `x`, whose largest is `max`.
    pub(super) fn of(x: &[f32], max: f32) -> Self {
        let max = f64::from(max);
        if max == f64::NEG_INFINITY {
            // Every token is banned: all probabilities are 0.
            return Self { max: 0.0, total: 1.0, entropy: 0.0 };
        }
        let (total, weighted) = dispatch(Exponentials { x, max });
        Self { max, total, entropy: (total.ln() - weighted / total).max(0.0) }
    }

    /// Probability of a token with this logit.
    pub(super) fn probability(&self, logit: f32) -> f64 {
        (f64::from(logit) - self.max).exp() / self.total
    }

    /// Natural logarithm of the probability of a token with this logit, without underflow.
    pub(super) fn log_probability(&self, logit: f32) -> f64 {
        (f64::from(logit) - self.max - self.total.ln()).min(0.0)
    }
}

/// Sums of `e^(x - max)` and of `(x - max) e^(x - max)`.
struct Exponentials<'a> {
    x: &'a [f32],
    max: f64,
}

impl Kernel for Exponentials<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f64, f64) {
        let lanes = S::LANES / 2;
        let (vectors, tail) = self.x.split_at(self.x.len() / lanes * lanes);
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        padded[..tail.len()].copy_from_slice(tail);
        let mut sums = [s.splat_d(0.0); 2];
        let max = s.splat_d(self.max);
        for i in (0..vectors.len()).step_by(lanes) {
            // SAFETY: i + lanes <= vectors.len().
            let x = unsafe { s.load_widen(vectors.as_ptr().add(i)) };
            sums = fold(s, sums, s.sub_d(x, max));
        }
        // SAFETY: half a vector fits into `padded`.
        let x = unsafe { s.load_widen(padded.as_ptr()) };
        let [total, weighted] = fold(s, sums, s.sub_d(x, max));
        (math::sum_d(s, total), math::sum_d(s, weighted))
    }
}

/// Adds `e^x` to the first sum and `x e^x` to the second.
#[inline(always)]
fn fold<S: Simd>(s: S, [total, weighted]: [S::D; 2], x: S::D) -> [S::D; 2] {
    let x = math::clamp_d(s, x);
    let e = math::exp_d(s, x);
    [s.add_d(total, e), s.fma_d(x, e, weighted)]
}
