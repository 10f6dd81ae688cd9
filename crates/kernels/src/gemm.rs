//! Matrix product with weights packed once, for few rows.
//!
//! Every output element is one chain of multiply-adds over the whole inner dimension, from the
//! first to the last: the tile height, the blocking of the inner dimension (partial sums are
//! stored and reloaded exactly) and the split over threads leave the bits alone.
//! candle's own product sums a single row in another order than several, packs the weights
//! in every call, and was slower at every row count measured (`examples/kernels.rs`).

mod encode;
mod packed;

use crate::parallel::{self, Shared};
use crate::simd::dot::{Columns, Dot, accumulate};
use crate::simd::tile::by_height;
use crate::simd::unit::{DotKernel, dispatch_unit};
use crate::simd::{MAX_LANES, Simd, math};
use encode::Rows;
pub(crate) use packed::Packed;

/// Words of the inner dimension handled per pass, so that a panel of weights stays in the
/// second-level cache.
const K_BLOCK: usize = 4096;
/// Rows that one task takes through a panel.
const ROW_BLOCK: usize = 192;
/// Multiply-adds of words below which threads cost more than they save.
const SERIAL_WORK: usize = 1 << 18;

/// What is done with a finished tile.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    /// `out = x W`.
    Store,
    /// `out = x W + residual`; `residual` is shaped like `out`.
    Add(&'a [f32]),
    /// The panel's first half is a gate, its second half goes through it:
    /// `out = silu(gate) * up`.
    Gate,
}

/// One product: `x [m, k]` times the packed weights into `out [m, n]`.
pub(crate) struct Product<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) m: usize,
    pub(crate) weights: &'a Packed,
    /// Length of packed columns, or none.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) finish: Finish<'a>,
    /// Columns of `out`.
    pub(crate) n: usize,
}

impl Product<'_> {
    /// Computes the product.
    pub(crate) fn run(&self, out: &mut [f32]) {
        let (m, weights) = (self.m, self.weights);
        assert!(
            self.x.len() == m * weights.k() && out.len() == m * self.n,
            "shapes of a product"
        );
        if m == 0 {
            return;
        }
        let x = Rows::new(weights.unit(), self.x, weights.k());
        let rows = m.div_ceil(ROW_BLOCK);
        let panels = weights.panels();
        let wanted = if m * weights.words() * panels * weights.unit().panel() < SERIAL_WORK {
            1
        } else {
            (4 * parallel::threads()).div_ceil(rows).min(panels)
        };
        let per_task = panels.div_ceil(wanted.max(1));
        let groups = panels.div_ceil(per_task);
        let shared = Shared::new(out);
        parallel::for_each(groups * rows, |task| {
            let (group, block) = (task / rows, task % rows);
            let kernel = Block {
                product: self,
                x: &x,
                rows: (block * ROW_BLOCK, ((block + 1) * ROW_BLOCK).min(m)),
                panels: (group * per_task, ((group + 1) * per_task).min(panels)),
                out: shared,
            };
            dispatch_unit(weights.unit(), kernel);
        });
    }
}

/// Some rows times some panels: one task.
struct Block<'a> {
    product: &'a Product<'a>,
    x: &'a Rows<'a>,
    rows: (usize, usize),
    panels: (usize, usize),
    out: Shared<f32>,
}

impl DotKernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let words = self.product.weights.words();
        if words <= K_BLOCK {
            for panel in self.panels.0..self.panels.1 {
                self.pass(d, panel, (0, words), &mut []);
            }
        } else {
            let mut partial = vec![0; (self.rows.1 - self.rows.0) * 2 * D::S::LANES];
            for panel in self.panels.0..self.panels.1 {
                for from in (0..words).step_by(K_BLOCK) {
                    self.pass(d, panel, (from, (from + K_BLOCK).min(words)), &mut partial);
                }
            }
        }
    }
}

impl Block<'_> {
    /// One panel over the words `span`; unfinished sums wait in `partial`.
    #[inline(always)]
    fn pass<D: Dot>(&self, d: D, panel: usize, span: (usize, usize), partial: &mut [u32]) {
        let mut row = self.rows.0;
        while row < self.rows.1 {
            let height = D::TILE_ROWS.min(self.rows.1 - row);
            by_height!(height, self.tile::<D, _>(d, (row, panel), span, partial));
            row += height;
        }
    }

    /// `R` rows from `row` on times one panel.
    #[inline(always)]
    fn tile<D: Dot, const R: usize>(
        &self,
        d: D,
        (row, panel): (usize, usize),
        (from, to): (usize, usize),
        partial: &mut [u32],
    ) {
        let (width, weights) = (2 * D::S::LANES, self.product.weights);
        let (start, words) = weights.panel(panel);
        let waiting = (row - self.rows.0) * width;
        let mut tile = [[d.zero(); 2]; R];
        for (r, sums) in tile.iter_mut().enumerate() {
            for (half, sum) in sums.iter_mut().enumerate() {
                if from > 0 {
                    let at = waiting + r * width + half * D::S::LANES;
                    // SAFETY: a slice of one vector.
                    *sum = unsafe { d.load(partial[at..at + D::S::LANES].as_ptr()) };
                } else if D::STARTS {
                    // SAFETY: a panel's start values are two vectors.
                    *sum = unsafe { d.load(start.add(half * D::S::LANES)) };
                }
            }
        }
        let stride = self.x.stride;
        let x = &self.x.words[row * stride + from..];
        assert!(x.len() >= (R - 1) * stride + to - from, "rows of x");
        // SAFETY: x holds R rows (checked above); the panel holds its words of two vectors.
        unsafe {
            let b = Columns::panel(words.add(from * width), D::S::LANES);
            accumulate(d, &mut tile, to - from, (x.as_ptr(), stride), b);
        }
        if to < weights.words() {
            let vectors = tile.into_iter().flatten();
            let waiting = partial[waiting..].chunks_exact_mut(D::S::LANES);
            for (sum, to) in vectors.zip(waiting) {
                // SAFETY: a slice of one vector.
                unsafe { d.store(to.as_mut_ptr(), sum) };
            }
            return;
        }
        self.finish(d, &tile, row, panel);
    }

    /// Scales and bias of a finished row of a tile.
    #[inline(always)]
    fn values<D: Dot>(
        &self,
        d: D,
        sums: [D::Sum; 2],
        row: usize,
        panel: usize,
    ) -> [<D::S as Simd>::F; 2] {
        let (s, lanes) = (d.simd(), D::S::LANES);
        let (scale, scales) = (self.x.scale(row), self.product.weights.scales(panel));
        // A loop, as a closure would not be compiled for the multiplier's instructions.
        let mut values = [s.splat(0.0); 2];
        for (half, value) in values.iter_mut().enumerate() {
            // SAFETY: two vectors of scales belong to a panel if there are any.
            *value = unsafe { d.value(sums[half], scale, scales.wrapping_add(half * lanes)) };
            if let Some(bias) = self.product.bias {
                let bias = &bias[(2 * panel + half) * lanes..][..lanes];
                // SAFETY: a slice of one vector.
                *value = s.add(*value, unsafe { s.load(bias.as_ptr()) });
            }
        }
        values
    }

    /// Writes a finished tile.
    #[inline(always)]
    fn finish<D: Dot, const R: usize>(
        &self,
        d: D,
        tile: &[[D::Sum; 2]; R],
        row: usize,
        panel: usize,
    ) {
        let (s, n) = (d.simd(), self.product.n);
        let width = if let Finish::Gate = self.product.finish {
            D::S::LANES
        } else {
            2 * D::S::LANES
        };
        let column = panel * width;
        let count = width.min(n - column);
        for (r, &sums) in tile.iter().enumerate() {
            let at = (row + r) * n + column;
            // SAFETY: tasks own disjoint rows or panels.
            let out = unsafe { self.out.part(at, count) };
            let [low, high] = self.values(d, sums, row + r, panel);
            match self.product.finish {
                Finish::Store => write(s, out, [low, high]),
                Finish::Add(residual) => {
                    write(s, out, [low, high]);
                    out.iter_mut()
                        .zip(&residual[at..at + count])
                        .for_each(|(o, x)| *o += x);
                }
                Finish::Gate => {
                    let denominator = s.add(s.splat(1.0), math::exp(s, s.sub(s.splat(0.0), low)));
                    write(s, out, [s.mul(s.div(low, denominator), high), s.splat(0.0)]);
                }
            }
        }
    }
}

/// Writes the first `out.len()` of two vectors' lanes.
#[inline(always)]
fn write<S: Simd>(s: S, out: &mut [f32], [low, high]: [S::F; 2]) {
    if out.len() == 2 * S::LANES {
        // SAFETY: exactly two vectors long.
        unsafe {
            s.store(out.as_mut_ptr(), low);
            s.store(out[S::LANES..].as_mut_ptr(), high);
        }
    } else {
        let mut lanes = [0.0f32; 2 * MAX_LANES];
        // SAFETY: LANES <= MAX_LANES.
        unsafe {
            s.store(lanes.as_mut_ptr(), low);
            s.store(lanes[S::LANES..].as_mut_ptr(), high);
        }
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

#[cfg(test)]
pub(crate) mod tests;
