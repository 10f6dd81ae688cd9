//! Matrix product with packed weights, for few rows.
//!
//! Every output element is one chain of multiply-adds over the complete inner dimension in ascending
//! order. The tile height, the blocking of the inner dimension (partial sums are stored and reloaded
//! exactly) and the split over threads do not change the bits. candle's own product sums a single row
//! in another order than several rows, packs the weights in every call, and was slower at every
//! measured row count (`examples/kernels.rs`).
//!
//! Codes of four to eight bits are multiplied in groups (`crate::simd::blocks`): a step of the inner
//! dimension is one or several groups then. 8-bit floats become bf16 first (`widen`). It is two words where an instruction multiplies two rows and
//! two columns (`crate::simd::neon`), and a word otherwise.

mod blocks;
mod encode;
mod finish;
mod packed;
mod tiles;
mod widen;
mod words;

use crate::parallel::{self, Shared, filled};
use crate::simd::blocks::dispatch_blocks;
use crate::simd::dot::{Columns, Dot, Multiply, MultiplyKernel, RowPointer};
use crate::simd::tile::{MAX_TILE_ROWS, by_height};
use crate::simd::unit::{DotKernel, Unit, dispatch_paired, dispatch_unit};
use crate::simd::{Simd, amx};
pub use blocks::row_in_codes;
pub(crate) use blocks::{group_codes, repack, round_to_codes};
use encode::Rows;
pub use encode::row_to_bytes;
pub(crate) use encode::{round_to_bf16, scale as row_scale};
pub(crate) use finish::{Activation, Finish};
pub(crate) use packed::{Column, Packed, Packing};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Words of the inner dimension per pass, so that the rows, a panel of weights and the next panel fit
/// in the L2 cache.
const K_BLOCK: usize = 2048;
/// Maximum rows of one task, except for tile units.
const ROW_BLOCK: usize = 192;
/// Multiply-adds of words below which a single thread is faster.
const SERIAL_WORK: usize = 1 << 18;

/// One product: `x [m, k]` times the packed weights into `out [m, n]`.
pub(crate) struct Product<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) m: usize,
    pub(crate) weights: &'a Packed,
    /// One value per packed column, or none.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) finish: Finish<'a>,
    pub(crate) place: Place,
}

/// The columns of `out` that a product computes.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Columns of `out`.
    pub(crate) stride: usize,
}

impl Place {
    /// All `n` columns.
    #[cfg(test)]
    pub(crate) fn all(n: usize) -> Self {
        Self { first: 0, count: n, stride: n }
    }

    /// The first column of a panel of `width` columns of `out`, and their number.
    fn panel(self, panel: usize, width: usize) -> (usize, usize) {
        let offset = panel * width;
        (self.first + offset, width.min(self.count - offset))
    }
}

impl Product<'_> {
    /// Computes the product.
    #[cfg(test)]
    pub(crate) fn run(&self) -> Vec<f32> {
        Self::run_all(std::slice::from_ref(self))
    }

    /// Computes products of the same rows, whose columns are all columns of the result.
    pub(crate) fn run_all(products: &[Self]) -> Vec<f32> {
        let Some(Self { x, m, place, .. }) = products.first() else {
            return Vec::new();
        };
        let mut covered = 0;
        for product in products {
            let (weights, columns_of) = (product.weights, product.place);
            let columns = match product.finish.is_gate() {
                true => weights.columns() / 2,
                false => weights.columns(),
            };
            let fits = columns_of.first == covered
                && columns_of.count <= columns
                && columns_of.stride == place.stride;
            let reads = product.x.len() == m * weights.k();
            assert!(fits && reads, "shapes of a product");
            covered += columns_of.count;
        }
        assert_eq!(covered, place.stride, "columns of products");
        // SAFETY: every tile writes its rows and columns, and the tiles of all products cover them.
        unsafe {
            filled(m * place.stride, |out| {
                // The encodings of rows for multipliers of one dtype differ by their parts alone.
                let rows = |product: &Self| {
                    let unit = product.weights.unit();
                    (unit.dtype(), unit.parts())
                };
                for products in products.chunk_by(|a, b| rows(a) == rows(b)) {
                    let weights = products[0].weights;
                    let encoded = Rows::new(weights.unit(), x, weights.k());
                    products.iter().for_each(|product| product.fill(&encoded, out));
                }
            })
        }
    }

    fn fill(&self, x: &Rows<'_>, out: Shared<MaybeUninit<f32>>) {
        let (m, weights) = (self.m, self.weights);
        if m == 0 {
            return;
        }
        let rows = m.div_ceil(match weights.unit().tiles() {
            Some(_) => tiles::block_rows(weights.steps()),
            None => ROW_BLOCK,
        });
        // Blocks of similar height; whole squares of a tile unit.
        let height = m.div_ceil(rows).next_multiple_of(2 * amx::ROWS);
        let rows = m.div_ceil(height);
        let panels = weights.panels();
        let group_count = if m * x.stride * panels * weights.unit().panel() < SERIAL_WORK {
            1
        } else {
            (4 * parallel::threads()).div_ceil(rows).min(panels)
        };
        let per_task = panels.div_ceil(group_count.max(1));
        let groups = panels.div_ceil(per_task);
        parallel::for_each(groups * rows, |task| {
            let (group, block) = (task / rows, task % rows);
            let rows = (block * height, ((block + 1) * height).min(m));
            let panels = (group * per_task, ((group + 1) * per_task).min(panels));
            match weights.is_fp8() {
                true => self.run_widened(x, rows, panels, out),
                false => Block { product: self, x, rows, panels, out }.run_task(),
            }
        });
    }

    /// Computes a task whose panels are widened, one after another.
    fn run_widened(
        &self,
        x: &Rows<'_>,
        rows: (usize, usize),
        panels: (usize, usize),
        out: Shared<MaybeUninit<f32>>,
    ) {
        let width = self.weights.unit().panel();
        let columns = if self.finish.is_gate() { width / 2 } else { width };
        let mut wide = widen::Panel::new(self.weights);
        for panel in panels.0..panels.1 {
            let (first, count) = self.place.panel(panel, columns);
            let product = Product {
                weights: wide.widen(self.weights, panel),
                bias: self.bias.map(|bias| &bias[panel * width..]),
                place: Place { first, count, ..self.place },
                ..*self
            };
            Block { product: &product, x, rows, panels: (0, 1), out }.run_task();
        }
    }
}

/// One task: some rows times some panels.
struct Block<'a> {
    product: &'a Product<'a>,
    x: &'a Rows<'a>,
    rows: (usize, usize),
    panels: (usize, usize),
    out: Shared<MaybeUninit<f32>>,
}

impl Block<'_> {
    /// Computes the task with the multiplier of its weights.
    fn run_task(self) {
        match self.product.weights.unit() {
            Unit::Blocks(set, form) => dispatch_blocks(set, form, self),
            unit if unit.is_paired() => dispatch_paired(unit, self),
            unit => match unit.tiles() {
                Some(tiles) => tiles::run(tiles, &self),
                None => dispatch_unit(unit, self),
            },
        }
    }
}

impl DotKernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        self.passes(d);
    }
}

impl MultiplyKernel for Block<'_> {
    #[inline(always)]
    fn run<M: Multiply>(self, multiply: M) {
        self.passes(multiply);
    }
}

/// Where a tile begins, and its rows.
#[derive(Clone, Copy)]
struct Corner {
    row: usize,
    panel: usize,
    height: usize,
}

/// The operands of a tile; all of their memory is readable.
struct Operands<'a> {
    /// Number of rows.
    height: usize,
    /// Steps of the inner dimension.
    steps: usize,
    rows: RowPointer,
    columns: Columns,
    read: PhantomData<&'a [u32]>,
}

impl Operands<'_> {
    /// Adds the products of `R` rows to their sums.
    #[inline(always)]
    fn multiply<D: Multiply, const R: usize>(&self, d: D, sums: &mut [[D::Sum; 2]]) {
        let tile = match sums.first_chunk_mut::<R>() {
            Some(tile) if const { R <= D::TILE_ROWS } && R == self.height => tile,
            _ => unreachable!("tiles are at most as high as the registers allow"),
        };
        // SAFETY: R rows and two vectors of columns, for each step.
        unsafe { d.accumulate(tile, self.steps, self.rows, self.columns) };
    }
}

impl Block<'_> {
    /// Computes the task in passes over the inner dimension.
    #[inline(always)]
    fn passes<D: Multiply>(&self, d: D) {
        let steps = self.product.weights.steps();
        let passes = (steps * D::ROW).div_ceil(K_BLOCK).max(1);
        let span = steps.div_ceil(passes);
        let panels = self.panels.0..self.panels.1;
        let waiting = (self.rows.1 - self.rows.0) * 2 * D::S::LANES;
        let passes = steps.div_ceil(span);
        let mut partial = vec![0; if passes > 1 { panels.len() * waiting } else { 0 }];
        for start in (0..steps).step_by(span) {
            let span = start..(start + span).min(steps);
            for (i, panel) in panels.clone().enumerate() {
                let partial = partial.get_mut(i * waiting..).unwrap_or_default();
                self.pass(d, panel, span.clone(), partial);
            }
        }
    }

    /// Processes the steps `span` of one panel; `partial` stores the sums between passes.
    #[inline(always)]
    fn pass<D: Multiply>(&self, d: D, panel: usize, span: Range<usize>, partial: &mut [u32]) {
        let mut row = self.rows.0;
        while row < self.rows.1 {
            // Tiles of similar height: a low tile would read the panel for little work.
            let left = self.rows.1 - row;
            let height = left.div_ceil(left.div_ceil(D::TILE_ROWS));
            self.tile(d, Corner { row, panel, height }, span.clone(), partial);
            row += height;
        }
    }

    /// Multiplies the rows of a tile by the steps `span` of one panel. Only the multiplication is
    /// compiled for every height.
    #[inline(always)]
    fn tile<D: Multiply>(&self, d: D, corner: Corner, span: Range<usize>, partial: &mut [u32]) {
        let (width, weights) = (2 * D::S::LANES, self.product.weights);
        let first = (corner.row - self.rows.0) * width;
        let waiting = partial.get_mut(first..first + corner.height * width);
        let mut sums = [const { MaybeUninit::uninit() }; MAX_TILE_ROWS];
        let sums = &mut sums[..corner.height];
        let (start, _) = weights.panel(corner.panel);
        for (r, sums) in sums.iter_mut().enumerate() {
            sums.write(match &waiting {
                Some(waiting) if span.start > 0 => Self::load(d, &waiting[r * width..]),
                // SAFETY: a panel's start values are two vectors.
                _ if D::STARTS => unsafe { [d.load(start), d.load(start.add(D::S::LANES))] },
                _ => [d.zero(); 2],
            });
        }
        // SAFETY: written above.
        let sums = unsafe { sums.assume_init_mut() };
        if span.end == weights.steps() {
            self.prefetch_output(d, corner);
        }
        let operands = self.operands::<D>(corner, span.clone());
        by_height!(corner.height, operands.multiply::<D, _>(d, sums));
        if span.end == weights.steps() {
            self.finish(d, sums, corner);
        } else if let Some(waiting) = waiting {
            for (sums, waiting) in sums.iter().zip(waiting.chunks_exact_mut(width)) {
                Self::store(d, *sums, waiting);
            }
        }
    }

    /// The sums of a row that wait between passes.
    #[inline(always)]
    fn load<D: Multiply>(d: D, words: &[u32]) -> [D::Sum; 2] {
        let (low, high) = words[..2 * D::S::LANES].split_at(D::S::LANES);
        // SAFETY: slices of one vector.
        unsafe { [d.load(low.as_ptr()), d.load(high.as_ptr())] }
    }

    #[inline(always)]
    fn store<D: Multiply>(d: D, sums: [D::Sum; 2], words: &mut [u32]) {
        let (low, high) = words[..2 * D::S::LANES].split_at_mut(D::S::LANES);
        // SAFETY: slices of one vector.
        unsafe {
            d.store(low.as_mut_ptr(), sums[0]);
            d.store(high.as_mut_ptr(), sums[1]);
        }
    }

    /// The rows of a tile and the steps `span` of its panel.
    #[inline(always)]
    fn operands<D: Multiply>(&self, corner: Corner, span: Range<usize>) -> Operands<'_> {
        let (weights, stride) = (self.product.weights, self.x.stride);
        let (_, words) = weights.panel(corner.panel);
        let x = &self.x.words()[corner.row * stride + span.start * D::ROW..];
        let used = span.len() * D::ROW;
        assert!(
            x.len() >= (corner.height - 1) * stride + used && span.end <= weights.steps(),
            "rows of x"
        );
        // SAFETY: a panel has two vectors for each word of its steps.
        let words = unsafe { words.add(span.start * D::COLUMN * 2 * D::S::LANES) };
        Operands {
            height: corner.height,
            steps: span.len(),
            rows: RowPointer { first: x.as_ptr(), stride },
            columns: self.columns::<D>(words, span.len(), corner.row),
            read: PhantomData,
        }
    }

    /// The span of a panel that starts at `words`. Each tile that uses it prefetches a share of the
    /// same span of the next panel. A single row prefetches this panel instead if [`Simd::NEAR`] says
    /// how far ahead.
    #[inline(always)]
    fn columns<D: Multiply>(&self, words: *const u32, steps: usize, row: usize) -> Columns {
        let panel = Columns::panel(words, D::S::LANES);
        let rows = self.rows.1 - self.rows.0;
        if let (1, Some(near)) = (rows, D::S::NEAR) {
            return Columns {
                ahead: (words.wrapping_add(near), D::COLUMN * panel.stride),
                ..panel
            };
        }
        let tiles = rows.div_ceil(D::TILE_ROWS);
        let tile = (row - self.rows.0) * tiles / rows;
        let step = (D::COLUMN * panel.stride).div_ceil(tiles);
        let next = self.product.weights.panel_words() + tile * step * steps;
        Columns { ahead: (words.wrapping_add(next), step), ..panel }
    }

    /// Two vectors for the columns of a panel: `numbers`, or `default` if there are none.
    #[inline(always)]
    fn of_columns<S: Simd>(s: S, numbers: Option<&[f32]>, default: f32) -> [S::F; 2] {
        match numbers {
            // SAFETY: a slice of one vector each.
            Some(numbers) => unsafe {
                let (low, high) = (&numbers[..S::LANES], &numbers[S::LANES..2 * S::LANES]);
                [s.load(low.as_ptr()), s.load(high.as_ptr())]
            },
            None => [s.splat(default); 2],
        }
    }

    /// Writes a finished tile.
    #[inline(always)]
    fn finish<D: Multiply>(&self, d: D, tile: &[[D::Sum; 2]], corner: Corner) {
        let Corner { row, panel, .. } = corner;
        let (s, wide, place) = (d.simd(), 2 * D::S::LANES, self.product.place);
        let (column, count) = place.panel(panel, self.width::<D>());
        let (n, finish) = (place.stride, self.product.finish);
        let scales = Self::of_columns(s, self.product.weights.scales(panel), 1.0);
        let bias = self.product.bias.map(|bias| &bias[panel * wide..]);
        let added = Self::of_columns(s, bias, 0.0);
        for (r, &[low, high]) in tile.iter().enumerate() {
            let index = (row + r) * n + column;
            // SAFETY: tasks own disjoint rows or panels.
            let out = unsafe { self.out.slice(index, count) };
            let scale = self.x.scale(row + r);
            let mut low = d.value(low, scale, scales[0]);
            let mut high = d.value(high, scale, scales[1]);
            if bias.is_some() {
                (low, high) = (s.add(low, added[0]), s.add(high, added[1]));
            }
            finish.write(s, index, out, [low, high]);
        }
    }

    /// Number of result columns per panel.
    #[inline(always)]
    fn width<D: Multiply>(&self) -> usize {
        match self.product.finish.is_gate() {
            true => D::S::LANES,
            false => 2 * D::S::LANES,
        }
    }

    /// Prefetches the output of a tile, for writing.
    #[inline(always)]
    fn prefetch_output<D: Multiply>(&self, d: D, corner: Corner) {
        let (n, width) = (self.product.place.stride, self.width::<D>());
        let start = corner.row * n + self.product.place.first + corner.panel * width;
        let out = self.out.start().wrapping_add(start);
        for r in 0..corner.height {
            for line in (0..width).step_by(16) {
                d.simd().prefetch_to_write(out.wrapping_add(r * n + line).cast());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
