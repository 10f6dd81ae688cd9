//! The forms in which finished sums are written.

use crate::simd::{MAX_LANES, Simd, math};
use std::mem::MaybeUninit;

/// The form in which a finished tile is written.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    /// `out = x W`.
    Store,
    /// `out = x W + residual`; `residual` has the shape of `out`.
    Add(&'a [f32]),
    /// `out = f(gate) * up`; the first half of a panel is the gate, the second half up.
    Gate(Activation),
}

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * sigmoid(2 u)` with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`, which is GELU in its tanh form.
    Gelu,
}

/// `2 * sqrt(2 / pi)`.
const GELU_LINEAR: f32 = 1.595_769;
/// `0.044715 * 2 * sqrt(2 / pi)`.
const GELU_CUBIC: f32 = 0.071_354_814;

impl Finish<'_> {
    /// True if half of a panel's columns are gates of the other half.
    pub(super) fn is_gate(self) -> bool {
        matches!(self, Self::Gate(_))
    }

    /// Writes two vectors of one row, or as many lanes as `out` has. `first` is the position of `out`
    /// in the result.
    #[inline(always)]
    pub(super) fn write<S: Simd>(
        self,
        s: S,
        first: usize,
        out: &mut [MaybeUninit<f32>],
        vectors: [S::F; 2],
    ) {
        let [low, high] = vectors;
        match self {
            Finish::Store => write(s, out, vectors),
            Finish::Add(residual) => {
                let [a, b] = read(s, &residual[first..first + out.len()]);
                write(s, out, [s.add(low, a), s.add(high, b)]);
            }
            Finish::Gate(activation) => {
                let x = match activation {
                    Activation::Silu => low,
                    Activation::Gelu => {
                        let (linear, cubic) = (s.splat(GELU_LINEAR), s.splat(GELU_CUBIC));
                        s.mul(low, s.fma(s.mul(low, low), cubic, linear))
                    }
                };
                let denominator = s.add(s.splat(1.0), math::exp(s, s.sub(s.splat(0.0), x)));
                write(s, out, [s.mul(s.div(low, denominator), high), s.splat(0.0)]);
            }
        }
    }
}

/// Reads two vectors; lanes beyond the end of `numbers` are zero.
#[inline(always)]
fn read<S: Simd>(s: S, numbers: &[f32]) -> [S::F; 2] {
    let mut lanes = [0.0f32; 2 * MAX_LANES];
    let numbers = if numbers.len() == 2 * S::LANES {
        numbers
    } else {
        lanes[..numbers.len()].copy_from_slice(numbers);
        &lanes
    };
    // SAFETY: at least two vectors long.
    unsafe { [s.load(numbers.as_ptr()), s.load(numbers[S::LANES..].as_ptr())] }
}

/// Writes the first `out.len()` lanes of two vectors.
#[inline(always)]
fn write<S: Simd>(s: S, out: &mut [MaybeUninit<f32>], [low, high]: [S::F; 2]) {
    if out.len() == 2 * S::LANES {
        // SAFETY: exactly two vectors long.
        unsafe {
            s.store(out.as_mut_ptr().cast(), low);
            s.store(out[S::LANES..].as_mut_ptr().cast(), high);
        }
    } else if out.len() == S::LANES {
        // SAFETY: exactly one vector long.
        unsafe { s.store(out.as_mut_ptr().cast(), low) };
    } else {
        let mut lanes = [0.0f32; 2 * MAX_LANES];
        // SAFETY: LANES <= MAX_LANES.
        unsafe {
            s.store(lanes.as_mut_ptr(), low);
            s.store(lanes[S::LANES..].as_mut_ptr(), high);
        }
        out.write_copy_of_slice(&lanes[..out.len()]);
    }
}
