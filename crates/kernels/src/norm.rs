//! RMS normalisation of rows and of heads.

use crate::parallel::{self, Shared, filled};
use crate::simd::{Kernel, MAX_LANES, Simd, dispatch};
use crate::storage::{numbers, numbers_mut};
use candle_core::{CpuStorage, CustomOp1, InplaceOp1, Layout, Result, Shape, Tensor, bail};
use std::mem::MaybeUninit;
use std::ops::Range;

/// `x / sqrt(mean(x^2) + eps) * weight` per row, for `x [r, d]`, f32, and `weight [d]`.
pub fn rms_norm(x: &Tensor, weight: &[f32], eps: f32) -> Result<Tensor> {
    x.apply_op1_no_bwd(&RmsNorm { weight, eps })
}

struct RmsNorm<'a> {
    weight: &'a [f32],
    eps: f32,
}

impl CustomOp1 for RmsNorm<'_> {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, d) = layout.shape().dims2()?;
        let x = numbers(self.name(), x, layout)?;
        let weight = self.weight;
        if weight.len() != d {
            bail!("rms-norm: {} weights for rows of {d}", weight.len());
        }
        let fill = |shared: Shared<MaybeUninit<f32>>| {
            parallel::for_rows(rows, rows * d, |Range { start, end }| {
                // SAFETY: tasks own disjoint rows.
                let out = unsafe { shared.slice(start * d, (end - start) * d) };
                dispatch(Rows { x: &x[start * d..end * d], weight, eps: self.eps, out });
            });
        };
        // SAFETY: the tasks cover all rows, and each writes all of its own.
        let out = unsafe { filled(rows * d, fill) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// One task: some rows.
struct Rows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.weight.len();
        for (x, out) in self.x.chunks_exact(d).zip(self.out.chunks_exact_mut(d)) {
            // SAFETY: both hold d numbers.
            unsafe { normalise(s, x.as_ptr(), self.weight, self.eps, out.as_mut_ptr().cast()) };
        }
    }
}

/// Normalises one vector of `weight.len()` numbers.
///
/// # Safety
/// `weight.len()` numbers are readable from `x` on and writable from `out` on; `x` and `out` may be
/// the same.
#[inline(always)]
unsafe fn normalise<S: Simd>(s: S, x: *const f32, weight: &[f32], eps: f32, out: *mut f32) {
    let d = weight.len();
    let vectors = d / S::LANES * S::LANES;
    let mut squares = s.splat(0.0);
    for i in (0..vectors).step_by(S::LANES) {
        // SAFETY: i + LANES <= d.
        let v = unsafe { s.load(x.add(i)) };
        squares = s.fma(v, v, squares);
    }
    let mut tail = [0.0; MAX_LANES];
    for (i, tail) in (vectors..d).zip(&mut tail) {
        // SAFETY: i < d.
        *tail = unsafe { *x.add(i) };
    }
    // SAFETY: LANES <= MAX_LANES.
    let v = unsafe { s.load(tail.as_ptr()) };
    let sum = s.sum(s.fma(v, v, squares));
    let factor = 1.0 / (sum / d as f32 + eps).sqrt();
    for i in (0..vectors).step_by(S::LANES) {
        // SAFETY: i + LANES <= d.
        unsafe {
            let v = s.mul(s.load(x.add(i)), s.splat(factor));
            s.store(out.add(i), s.mul(v, s.load(weight.as_ptr().add(i))));
        }
    }
    for (i, weight) in weight.iter().enumerate().skip(vectors) {
        // SAFETY: i < d.
        unsafe { *out.add(i) = *x.add(i) * factor * weight };
    }
}

/// Normalises the first heads of every row of a tensor `[r, >= weights]` in place, each head
/// separately: `x / sqrt(mean(x^2) + eps) * weight`.
pub struct HeadNorm<'a> {
    /// Weights of all heads, `[heads * c]`.
    pub weights: &'a [f32],
    /// Head width `c`, at least 1.
    pub width: usize,
    /// Added to the mean square.
    pub eps: f32,
}

impl InplaceOp1 for HeadNorm<'_> {
    fn name(&self) -> &'static str {
        "head-norm"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, width) = layout.shape().dims2()?;
        let data = numbers_mut(self.name(), storage, layout)?;
        let columns = self.weights.len();
        if self.width == 0 || !columns.is_multiple_of(self.width) || columns > width {
            bail!("head-norm: {columns} weights of heads of {}, rows of {width}", { self.width });
        }
        let shared = Shared::new(data);
        parallel::for_rows(rows, rows * columns, |Range { start, end }| {
            // SAFETY: tasks own disjoint rows.
            let data = unsafe { shared.slice(start * width, (end - start) * width) };
            dispatch(Heads { norm: self, row: width, data });
        });
        Ok(())
    }
}

/// One task: the heads of some rows.
struct Heads<'a> {
    norm: &'a HeadNorm<'a>,
    /// Elements of a row.
    row: usize,
    data: &'a mut [f32],
}

impl Kernel for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let HeadNorm { weights, width, eps } = *self.norm;
        for row in self.data.chunks_exact_mut(self.row) {
            let heads = row.chunks_exact_mut(width);
            for (head, weight) in heads.zip(weights.chunks_exact(width)) {
                let head = head.as_mut_ptr();
                // SAFETY: the head holds as many numbers as it has weights.
                unsafe { normalise(s, head, weight, eps, head) };
            }
        }
    }
}
