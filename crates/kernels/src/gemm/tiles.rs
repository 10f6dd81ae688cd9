//! Products on a tile unit.
//!
//! Two tiles of rows times two tiles of columns are four sums in registers. A panel of packed weights
//! is what the unit takes as columns, and an encoded row what it takes as rows, so both are read in
//! place. An output element is summed over the words of the inner dimension in tiles of 16, in
//! ascending order, whatever the number of rows.

use super::Block;
use crate::simd::amx::{ROWS, TileKernel, TileUnit, Tiles, WORDS, dispatch_tiles};
use crate::simd::unit::WeightDtype;
use crate::simd::{Kernel, Simd, dispatch_on};
use std::ops::Range;

/// Columns of a panel.
const WIDTH: usize = 2 * WORDS;
/// Words of the inner dimension per pass: that part of a panel, 32 KiB, stays in the L1 cache while
/// all rows of a task are multiplied by it.
const SPAN: usize = 256;
/// Words of the inner dimension from a tile of columns to the one that is prefetched meanwhile.
const AHEAD: usize = 4 * WORDS;

/// The sums of one row and a panel.
type Sums = [u32; WIDTH];

/// Computes the tiles of a task.
pub(super) fn run(tiles: Tiles, block: &Block<'_>) {
    let rows = block.rows.1 - block.rows.0;
    dispatch_tiles(tiles, rows.min(ROWS), Multiply { block });
}

/// The work of one task.
struct Multiply<'a> {
    block: &'a Block<'a>,
}

impl TileKernel for Multiply<'_> {
    type Output = ();

    fn run<U: TileUnit>(self, unit: &mut U) {
        let Block { rows, panels, .. } = *self.block;
        let weights = self.block.product.weights;
        let (count, words) = (rows.1 - rows.0, weights.steps());
        let mut sums = vec![[0; WIDTH]; count.next_multiple_of(ROWS)];
        // Few rows read a panel once; many rows share a part of it in the cache.
        let span = if count > 2 * ROWS { SPAN } else { words };
        for panel in panels.0..panels.1 {
            for from in (0..words).step_by(span) {
                let part = from..(from + span).min(words);
                for row in (0..count).step_by(2 * ROWS) {
                    let square = Square::new(self.block, panel, row, part.clone());
                    match weights.unit().dtype() {
                        WeightDtype::Int8 => square.run::<U, true>(unit, &mut sums[row..]),
                        _ => square.run::<U, false>(unit, &mut sums[row..]),
                    }
                }
            }
            let finished = Finished {
                block: self.block,
                panel,
                sums: &sums[..count],
            };
            dispatch_on(weights.unit().set(), finished);
        }
    }
}

/// One or two tiles of rows times two tiles of columns.
struct Square<'a> {
    /// Words of the rows, from the first of the pass on.
    rows: &'a [u32],
    /// Words from one row to the next.
    stride: usize,
    /// Start values of the sums of a panel, if the dtype has them.
    start: *const u32,
    /// The first word of the panel in this pass.
    columns: *const u32,
    /// Words in this pass, a multiple of 16.
    words: usize,
    /// Whether the pass is the first.
    is_first: bool,
    /// Whether there are two tiles of rows.
    is_double: bool,
    /// Whether the columns have to be fetched: no other square has read them before.
    fetches: bool,
}

impl<'a> Square<'a> {
    /// The rows of a task from its row `row` on, by the words `part` of a panel.
    fn new(block: &'a Block<'a>, panel: usize, row: usize, part: Range<usize>) -> Self {
        let (x, weights) = (block.x, block.product.weights);
        assert!(
            part.end <= weights.steps() && part.len().is_multiple_of(WORDS),
            "tiles of words"
        );
        let count = block.rows.1 - block.rows.0;
        let is_double = count - row > ROWS;
        let (start, columns) = weights.panel(panel);
        let rows = &x.words[(block.rows.0 + row) * x.stride + part.start..];
        // The last tile is filled up, so a register never reads beyond the rows in memory.
        let read = if is_double { 2 * ROWS } else { count.min(ROWS) };
        assert!(
            rows.len() >= (read - 1) * x.stride + part.len(),
            "tiles of rows"
        );
        Self {
            rows,
            stride: x.stride,
            start,
            // SAFETY: within the panel, checked above.
            columns: unsafe { columns.add(part.start * WIDTH) },
            words: part.len(),
            is_first: part.start == 0,
            is_double,
            fetches: row == 0,
        }
    }

    /// Adds the products to `sums`, which begin with those of the first row.
    fn run<U: TileUnit, const BYTES: bool>(&self, unit: &mut U, sums: &mut [Sums]) {
        assert!(
            sums.len() >= ROWS * if self.is_double { 2 } else { 1 },
            "sums of all rows"
        );
        // SAFETY: the sums of all rows, checked above; the operands, checked when they were chosen.
        unsafe {
            let low = sums.as_mut_ptr().cast::<u32>();
            let high = low.wrapping_add(ROWS * WIDTH);
            if self.is_first {
                self.begin::<U, BYTES>(unit);
            } else {
                unit.load::<0>(low, WIDTH);
                unit.load::<1>(low.add(WORDS), WIDTH);
                if self.is_double {
                    unit.load::<2>(high, WIDTH);
                    unit.load::<3>(high.add(WORDS), WIDTH);
                }
            }
            self.accumulate::<U, BYTES>(unit);
            unit.store::<0>(low, WIDTH);
            unit.store::<1>(low.add(WORDS), WIDTH);
            if self.is_double {
                unit.store::<2>(high, WIDTH);
                unit.store::<3>(high.add(WORDS), WIDTH);
            }
        }
    }

    /// Sets the sums to their start values.
    ///
    /// # Safety
    /// The start values of a panel are readable if the words are bytes.
    unsafe fn begin<U: TileUnit, const BYTES: bool>(&self, unit: &mut U) {
        if BYTES {
            // SAFETY: the caller's promise; every row of the sums reads the same values.
            unsafe {
                unit.load::<0>(self.start, 0);
                unit.load::<1>(self.start.add(WORDS), 0);
                unit.load::<2>(self.start, 0);
                unit.load::<3>(self.start.add(WORDS), 0);
            }
        } else {
            unit.zero::<0>();
            unit.zero::<1>();
            unit.zero::<2>();
            unit.zero::<3>();
        }
    }

    /// Adds the products to the registers of sums.
    ///
    /// # Safety
    /// The words of the rows and of the panel are readable.
    unsafe fn accumulate<U: TileUnit, const BYTES: bool>(&self, unit: &mut U) {
        let rows = self.rows.as_ptr();
        for word in (0..self.words).step_by(WORDS) {
            // SAFETY: the caller's promise.
            unsafe {
                let column = self.columns.add(word * WIDTH);
                if self.fetches {
                    let ahead = column.wrapping_add(AHEAD * WIDTH);
                    (0..WIDTH).for_each(|line| unit.prefetch(ahead.wrapping_add(line * WORDS)));
                }
                unit.load::<4>(column, WIDTH);
                unit.load::<5>(column.add(WORDS), WIDTH);
                unit.load::<6>(rows.add(word), self.stride);
                multiply::<U, BYTES, 0, 6, 4>(unit);
                multiply::<U, BYTES, 1, 6, 5>(unit);
                if self.is_double {
                    unit.load::<7>(rows.add(ROWS * self.stride + word), self.stride);
                    multiply::<U, BYTES, 2, 7, 4>(unit);
                    multiply::<U, BYTES, 3, 7, 5>(unit);
                }
            }
        }
    }
}

/// Adds the products of rows `A` and columns `B` to the sums `C`.
#[inline(always)]
fn multiply<U: TileUnit, const BYTES: bool, const C: u8, const A: u8, const B: u8>(unit: &mut U) {
    match BYTES {
        true => unit.multiply_bytes::<C, A, B>(),
        false => unit.multiply_bf16::<C, A, B>(),
    }
}

/// Sums of a panel that are complete.
struct Finished<'a> {
    block: &'a Block<'a>,
    panel: usize,
    /// One per row of the task.
    sums: &'a [Sums],
}

impl Kernel for Finished<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            product,
            x,
            out,
            rows,
            ..
        } = *self.block;
        let (weights, finish) = (product.weights, product.finish);
        let width = if finish.is_gate() { WORDS } else { WIDTH };
        let (column, count) = product.place.panel(self.panel, width);
        let n = product.place.stride;
        let scales = weights.scales(self.panel);
        let bias = product
            .bias
            .map(|bias| &bias[self.panel * WIDTH..][..WIDTH]);
        for (row, sums) in (rows.0..).zip(self.sums) {
            let mut values = sums.map(f32::from_bits);
            if let Some(scales) = scales {
                let scale = x.scale(row);
                for i in 0..WIDTH {
                    values[i] = sums[i].cast_signed() as f32 * (scale * scales[i]);
                }
            }
            if let Some(bias) = bias {
                values
                    .iter_mut()
                    .zip(bias)
                    .for_each(|(value, bias)| *value += bias);
            }
            // SAFETY: tasks own disjoint rows or panels.
            let out = unsafe { out.part(row * n + column, count) };
            // Vectors of this instruction set may be shorter than a tile.
            let (step, other) = match finish.is_gate() {
                true => (S::LANES, WORDS),
                false => (2 * S::LANES, S::LANES),
            };
            for at in (0..count).step_by(step) {
                let part = &mut out[at..count.min(at + step)];
                // SAFETY: two vectors within the values.
                let vectors = unsafe {
                    [
                        s.load(values[at..].as_ptr()),
                        s.load(values[at + other..].as_ptr()),
                    ]
                };
                finish.write(s, row * n + column + at, part, vectors);
            }
        }
    }
}
