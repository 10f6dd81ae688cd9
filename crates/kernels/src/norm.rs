//! RMS normalisation.

use crate::parallel::{self, Shared, filled};
use crate::simd::{Kernel, MAX_LANES, Simd, dispatch};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use std::mem::MaybeUninit;

/// Elements below which one thread does it all.
const SERIAL_ELEMENTS: usize = 1 << 15;
/// Rows of one task.
const ROW_BLOCK: usize = 16;

/// `x / sqrt(mean(x^2) + eps) * weight` per row, for `x [r, d]` and `weight [d]`, f32.
///
/// # Errors
/// If an argument has another shape, dtype or device.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2_no_bwd(weight, &RmsNorm { eps })
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, d) = layout.shape().dims2()?;
        let x = f32s(self.name(), x, layout)?;
        let weight = f32s(self.name(), weight, weight_layout)?;
        if weight.len() != d {
            bail!("rms-norm: {} weights for rows of {d}", weight.len());
        }
        let block = if rows * d < SERIAL_ELEMENTS {
            rows.max(1)
        } else {
            ROW_BLOCK
        };
        let fill = |shared: Shared<MaybeUninit<f32>>| {
            parallel::for_each(rows.div_ceil(block), |task| {
                let (from, to) = (task * block, ((task + 1) * block).min(rows));
                // SAFETY: tasks own disjoint rows.
                let out = unsafe { shared.part(from * d, (to - from) * d) };
                dispatch(Rows {
                    x: &x[from * d..to * d],
                    weight,
                    eps: self.eps,
                    out,
                });
            });
        };
        // SAFETY: the tasks cover all rows, and each writes all of its own.
        let out = unsafe { filled(rows * d, fill) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Some rows on one thread.
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
        let vectors = d / S::LANES * S::LANES;
        for (x, out) in self.x.chunks_exact(d).zip(self.out.chunks_exact_mut(d)) {
            let mut squares = s.splat(0.0);
            for i in (0..vectors).step_by(S::LANES) {
                // SAFETY: i + LANES <= d.
                let v = unsafe { s.load(x.as_ptr().add(i)) };
                squares = s.fma(v, v, squares);
            }
            let mut tail = [0.0; MAX_LANES];
            tail[..d - vectors].copy_from_slice(&x[vectors..]);
            // SAFETY: LANES <= MAX_LANES.
            let v = unsafe { s.load(tail.as_ptr()) };
            let sum = s.sum(s.fma(v, v, squares));
            let factor = 1.0 / (sum / d as f32 + self.eps).sqrt();
            for i in (0..vectors).step_by(S::LANES) {
                // SAFETY: i + LANES <= d.
                unsafe {
                    let v = s.mul(s.load(x.as_ptr().add(i)), s.splat(factor));
                    let v = s.mul(v, s.load(self.weight.as_ptr().add(i)));
                    s.store(out.as_mut_ptr().add(i).cast(), v);
                }
            }
            for i in vectors..d {
                out[i].write(x[i] * factor * self.weight[i]);
            }
        }
    }
}
