//! Matrix product with weights packed once, for few rows.
//!
//! Every output element is one chain of fused multiply-adds over the whole inner dimension,
//! from the first to the last: the tile height, the blocking of the inner dimension (partial
//! sums are stored and reloaded exactly) and the split over threads leave the bits alone.
//! candle's own product sums a single row in another order than several, packs the weights
//! in every call, and was slower at every row count measured (`examples/kernels.rs`).

use crate::parallel::{self, Shared};
use crate::simd::tile::{Tile, by_height};
use crate::simd::{InstructionSet, Kernel, MAX_LANES, Simd, dispatch_on, math};

/// Inner dimension handled per pass, so that a panel of weights stays in the second-level cache.
const K_BLOCK: usize = 4096;
/// Rows that one task takes through a panel.
const ROW_BLOCK: usize = 192;
/// Multiply-adds below which threads cost more than they save.
const SERIAL_WORK: usize = 1 << 18;

/// Sixteen f32 on their own cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A weight matrix `[n, k]` in panels of `2 * LANES` columns of the product: panel by panel,
/// for each k the panel's columns side by side, the last panel padded with zeros.
pub(crate) struct Packed {
    lines: Vec<Line>,
    set: InstructionSet,
    k: usize,
    panels: usize,
}

impl Packed {
    /// Packs panels of columns; `column(j)` is the weight row (length `k`) of packed column
    /// `j`, or none for padding. `columns` counts packed columns with padding.
    pub(crate) fn new<'a>(
        set: InstructionSet,
        k: usize,
        columns: usize,
        column: impl Fn(usize) -> Option<&'a [f32]> + Sync,
    ) -> Self {
        let width = set.panel();
        let panels = columns.div_ceil(width);
        let per_panel = k * width / 16;
        let mut lines = vec![Line([0.0; 16]); panels * per_panel];
        let shared = Shared::new(&mut lines);
        parallel::for_each(panels, |panel| {
            // SAFETY: one task per panel.
            let lines = unsafe { shared.part(panel * per_panel, per_panel) };
            let sources: Vec<_> = (0..width)
                .filter_map(|j| Some((j, column(panel * width + j)?)))
                .collect();
            for p in 0..k {
                for &(lane, weights) in &sources {
                    let at = p * width + lane;
                    lines[at / 16].0[at % 16] = weights[p];
                }
            }
        });
        Self {
            lines,
            set,
            k,
            panels,
        }
    }

    /// Inner dimension.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    fn panel(&self, index: usize) -> *const f32 {
        debug_assert!(index < self.panels);
        // SAFETY: in bounds by construction.
        unsafe {
            self.lines
                .as_ptr()
                .cast::<f32>()
                .add(index * self.k * self.set.panel())
        }
    }
}

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
        let (m, k) = (self.m, self.weights.k);
        assert!(
            self.x.len() == m * k && out.len() == m * self.n,
            "shapes of a product"
        );
        if m == 0 {
            return;
        }
        // Rows a power of two apart fall into the same cache sets: give them another stride.
        let padded = (k % 1024 == 0 && m > 1).then(|| pad(self.x, k));
        let (x, stride) = padded
            .as_ref()
            .map_or((self.x, k), |x| (x.as_slice(), k + 16));
        let rows = m.div_ceil(ROW_BLOCK);
        let panels = self.weights.panels;
        let wanted = if m * k * panels * self.weights.set.panel() < SERIAL_WORK {
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
                x,
                stride,
                rows: (block * ROW_BLOCK, ((block + 1) * ROW_BLOCK).min(m)),
                panels: (group * per_task, ((group + 1) * per_task).min(panels)),
                out: shared,
            };
            dispatch_on(self.weights.set, kernel);
        });
    }
}

fn pad(x: &[f32], k: usize) -> Vec<f32> {
    let mut padded = Vec::with_capacity(x.len() / k * (k + 16));
    for row in x.chunks_exact(k) {
        padded.extend_from_slice(row);
        padded.extend_from_slice(&[0.0; 16]);
    }
    padded
}

/// Some rows times some panels: one task.
struct Block<'a> {
    product: &'a Product<'a>,
    x: &'a [f32],
    stride: usize,
    rows: (usize, usize),
    panels: (usize, usize),
    out: Shared<f32>,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.product.weights.k;
        if k <= K_BLOCK {
            for panel in self.panels.0..self.panels.1 {
                self.pass(s, panel, (0, k), &mut []);
            }
        } else {
            let mut partial = vec![0.0; (self.rows.1 - self.rows.0) * 2 * S::LANES];
            for panel in self.panels.0..self.panels.1 {
                for from in (0..k).step_by(K_BLOCK) {
                    self.pass(s, panel, (from, (from + K_BLOCK).min(k)), &mut partial);
                }
            }
        }
    }
}

impl Block<'_> {
    /// One panel over inner indices `span`; unfinished sums wait in `partial`.
    #[inline(always)]
    fn pass<S: Simd>(&self, s: S, panel: usize, span: (usize, usize), partial: &mut [f32]) {
        let mut row = self.rows.0;
        while row < self.rows.1 {
            let height = S::TILE_ROWS.min(self.rows.1 - row);
            by_height!(height, self.tile::<S, _>(s, (row, panel), span, partial));
            row += height;
        }
    }

    /// `R` rows from `row` on times one panel.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(
        &self,
        s: S,
        (row, panel): (usize, usize),
        (from, to): (usize, usize),
        partial: &mut [f32],
    ) {
        let (width, weights) = (2 * S::LANES, self.product.weights);
        let mut tile = Tile::<S, R>::zero(s);
        let waiting = (row - self.rows.0) * width;
        if from > 0 {
            tile.load(s, &partial[waiting..waiting + R * width]);
        }
        let x = &self.x[row * self.stride + from..];
        assert!(x.len() >= (R - 1) * self.stride + to - from, "rows of x");
        // SAFETY: x holds R rows (checked above); the panel holds k rows of two vectors.
        unsafe {
            let b = weights.panel(panel).add(from * width);
            tile.accumulate(s, to - from, (x.as_ptr(), self.stride), b);
        }
        if to < weights.k {
            tile.store(s, &mut partial[waiting..waiting + R * width]);
            return;
        }
        if let Some(bias) = self.product.bias {
            tile.add_columns(s, &bias[panel * width..(panel + 1) * width]);
        }
        self.finish(s, &tile, row, panel);
    }

    /// Writes a finished tile.
    #[inline(always)]
    fn finish<S: Simd, const R: usize>(&self, s: S, tile: &Tile<S, R>, row: usize, panel: usize) {
        let n = self.product.n;
        let width = if let Finish::Gate = self.product.finish {
            S::LANES
        } else {
            2 * S::LANES
        };
        let column = panel * width;
        let count = width.min(n - column);
        for r in 0..R {
            let at = (row + r) * n + column;
            // SAFETY: tasks own disjoint rows or panels.
            let out = unsafe { self.out.part(at, count) };
            let [low, high] = tile.sums[r];
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
