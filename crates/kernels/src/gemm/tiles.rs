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

/// Columns of a panel, and rows of a square.
const WIDTH: usize = 2 * WORDS;
/// Words of the inner dimension per pass.
const SPAN: usize = 512;
/// Words of the rows of a task per pass: they fit in the L2 cache beside two panels. Many rows take
/// longer than the next panel needs to arrive from memory.
const BLOCK_WORDS: usize = 1 << 17;

/// The sums of one row and a panel.
type Sums = [u32; WIDTH];

/// Maximum rows of one task over an inner dimension of this number of words.
pub(super) fn block_rows(words: usize) -> usize {
    BLOCK_WORDS / span(words)
}

/// Words of the inner dimension per pass: passes of similar length.
fn span(words: usize) -> usize {
    let passes = words.div_ceil(SPAN).max(1);
    words.div_ceil(passes).next_multiple_of(WORDS).max(WORDS)
}

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
        let words = self.block.product.weights.steps();
        let squares = (rows.1 - rows.0).div_ceil(WIDTH);
        let span = span(words);
        // Between two passes the sums of all squares wait here. In a single pass those of a square wait
        // until the next one has been multiplied: they cannot be read at once.
        let waiting = if span < words { (panels.1 - panels.0) * squares } else { 2 };
        let mut sums = vec![[[0; WIDTH]; WIDTH]; waiting.max(2)];
        let mut last: Option<(SquareId, usize)> = None;
        for start in (0..words).step_by(span) {
            let span = start..(start + span).min(words);
            let ids = (panels.0..panels.1)
                .flat_map(|panel| (0..squares).map(move |index| SquareId { panel, index }));
            for (number, id) in ids.enumerate() {
                let index = number % sums.len();
                let square = Square::new(self.block, id, span.clone());
                let is_bytes = self.block.product.weights.unit().dtype() == WeightDtype::Int8;
                match (is_bytes, square.is_double) {
                    (true, true) => square.multiply::<U, true, true>(unit, &sums[index]),
                    (true, false) => square.multiply::<U, true, false>(unit, &sums[index]),
                    (false, true) => square.multiply::<U, false, true>(unit, &sums[index]),
                    (false, false) => square.multiply::<U, false, false>(unit, &sums[index]),
                }
                // While the unit still multiplies, the square before is written. A read of sums that were
                // just stored would wait, also if only the low bits of the addresses are the same.
                if let Some((id, index)) = last.take() {
                    self.finish(id, &sums[index]);
                }
                square.store(unit, &mut sums[index]);
                last = (span.end == words).then_some((id, index));
            }
        }
        if let Some((id, index)) = last {
            self.finish(id, &sums[index]);
        }
    }
}

impl Multiply<'_> {
    /// Writes the sums of a square.
    fn finish(&self, id: SquareId, sums: &[Sums; WIDTH]) {
        let Block { product, rows, .. } = *self.block;
        let row = id.index * WIDTH;
        let finished = Finished {
            block: self.block,
            panel: id.panel,
            row: rows.0 + row,
            sums: &sums[..WIDTH.min(rows.1 - rows.0 - row)],
        };
        dispatch_on(product.weights.unit().set(), finished);
    }
}

/// A square of a task.
#[derive(Clone, Copy)]
struct SquareId {
    panel: usize,
    /// The rows of the task from `32 * index` on.
    index: usize,
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
    /// True if the pass is the first.
    is_first: bool,
    /// True if there are two tiles of rows.
    is_double: bool,
    /// This square's share of the next panel in this pass, and its cache lines per tile of words.
    ahead: (*const u32, usize),
    /// The result; always the same row before the last pass.
    output: Output,
}

impl<'a> Square<'a> {
    /// A square of a task, by the words of its panel.
    fn new(block: &'a Block<'a>, id: SquareId, span: Range<usize>) -> Self {
        let SquareId { panel, index } = id;
        let (x, weights) = (block.x, block.product.weights);
        assert!(span.end <= weights.steps() && span.len().is_multiple_of(WORDS), "tiles of words");
        let (count, row) = (block.rows.1 - block.rows.0, index * WIDTH);
        let is_double = count - row > ROWS;
        let (start, columns) = weights.panel(panel);
        let rows = &x.words()[(block.rows.0 + row) * x.stride + span.start..];
        // The last tile is filled up, so a register never reads beyond the rows in memory.
        let read = if is_double { 2 * ROWS } else { count.min(ROWS) };
        assert!(rows.len() >= (read - 1) * x.stride + span.len(), "tiles of rows");
        // SAFETY: within the panel, checked above.
        let columns = unsafe { columns.add(span.start * WIDTH) };
        // A tile of words has two cache lines for each word of the panel.
        let lines = (2 * WORDS).div_ceil(count.div_ceil(WIDTH));
        let distance = index * lines * span.len();
        let next = columns.wrapping_add(weights.panel_words() + distance);
        let mut output = Output::new(block, id);
        if span.end < weights.steps() {
            output.stride = 0;
        }
        Self {
            rows,
            stride: x.stride,
            start,
            columns,
            words: span.len(),
            is_first: span.start == 0,
            is_double,
            ahead: (next, lines),
            output,
        }
    }

    /// Multiplies; the sums, after earlier passes `sums`, stay in registers.
    fn multiply<U: TileUnit, const BYTES: bool, const DOUBLE: bool>(
        &self,
        unit: &mut U,
        sums: &[Sums; WIDTH],
    ) {
        // SAFETY: the sums of two tiles of rows; the operands, checked when they were chosen.
        unsafe {
            if self.is_first {
                self.begin::<U, BYTES>(unit);
            } else {
                let low = sums.as_ptr().cast::<u32>();
                unit.load::<0>(low, WIDTH);
                unit.load::<1>(low.add(WORDS), WIDTH);
                if DOUBLE {
                    let high = low.add(ROWS * WIDTH);
                    unit.load::<2>(high, WIDTH);
                    unit.load::<3>(high.add(WORDS), WIDTH);
                }
            }
            self.accumulate::<U, BYTES, DOUBLE>(unit);
        }
    }

    /// Stores the sums in registers.
    fn store<U: TileUnit>(&self, unit: &mut U, sums: &mut [Sums; WIDTH]) {
        let low = sums.as_mut_ptr().cast::<u32>();
        // SAFETY: the sums of two tiles of rows.
        unsafe {
            unit.store::<0>(low, WIDTH);
            unit.store::<1>(low.add(WORDS), WIDTH);
            if self.is_double {
                let high = low.add(ROWS * WIDTH);
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
    #[inline(always)]
    unsafe fn accumulate<U: TileUnit, const BYTES: bool, const DOUBLE: bool>(&self, unit: &mut U) {
        let (mut row, mut column) = (self.rows.as_ptr(), self.columns);
        let (mut ahead, lines) = self.ahead;
        let mut output = self.output;
        // SAFETY: the caller's promise.
        unsafe {
            let end = row.add(self.words);
            while row < end {
                for _ in 0..lines {
                    unit.prefetch(ahead);
                    ahead = ahead.wrapping_add(WORDS);
                }
                unit.prefetch_to_write(output.next);
                unit.prefetch_to_write(output.next.wrapping_add(output.last));
                output.next = output.next.wrapping_add(output.stride);
                unit.load::<4>(column, WIDTH);
                unit.load::<6>(row, self.stride);
                multiply::<U, BYTES, 0, 6, 4>(unit);
                unit.load::<5>(column.add(WORDS), WIDTH);
                multiply::<U, BYTES, 1, 6, 5>(unit);
                if DOUBLE {
                    unit.load::<7>(row.wrapping_add(ROWS * self.stride), self.stride);
                    multiply::<U, BYTES, 2, 7, 4>(unit);
                    multiply::<U, BYTES, 3, 7, 5>(unit);
                }
                row = row.add(WORDS);
                column = column.wrapping_add(WORDS * WIDTH);
            }
        }
    }
}

/// The rows of the result of a square: one is prefetched per tile of words.
#[derive(Clone, Copy)]
struct Output {
    /// The next row.
    next: *const u32,
    /// Words from one row to the next.
    stride: usize,
    /// Words from the first to the last cache line of a row.
    last: usize,
}

impl Output {
    /// The result of a square.
    fn new(block: &Block<'_>, square: SquareId) -> Self {
        let Block { product, rows, .. } = *block;
        let width = if product.finish.is_gate() { WORDS } else { WIDTH };
        let (column, _) = product.place.panel(square.panel, width);
        let (stride, row) = (product.place.stride, square.index * WIDTH);
        let index = (rows.0 + row) * stride + column;
        Self { next: block.out.start().wrapping_add(index).cast(), stride, last: width - WORDS }
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

/// Sums of a square that are complete.
struct Finished<'a> {
    block: &'a Block<'a>,
    panel: usize,
    /// The first row.
    row: usize,
    /// One per row.
    sums: &'a [Sums],
}

impl Kernel for Finished<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let product = self.block.product;
        match (product.finish.is_gate(), product.weights.scales(self.panel)) {
            (true, None) => self.rows::<S, true>(s),
            (false, None) => self.rows::<S, false>(s),
            (true, Some(scales)) => self.scaled_rows::<S, true>(s, scales),
            (false, Some(scales)) => self.scaled_rows::<S, false>(s, scales),
        }
    }
}

impl Finished<'_> {
    /// Writes rows whose sums are the bits of numbers.
    #[inline(always)]
    fn rows<S: Simd, const GATE: bool>(&self, s: S) {
        for (row, sums) in (self.row..).zip(self.sums) {
            // SAFETY: as many values as sums.
            unsafe { self.write::<S, GATE>(s, row, sums.as_ptr().cast()) };
        }
    }

    /// Writes rows whose sums are integers.
    #[inline(always)]
    fn scaled_rows<S: Simd, const GATE: bool>(&self, s: S, scales: &[f32]) {
        let Some(scales) = scales.first_chunk::<WIDTH>() else {
            unreachable!("a scale for every column of a panel")
        };
        for (row, sums) in (self.row..).zip(self.sums) {
            let scale = self.block.x.scale(row);
            let mut values = [0.0; WIDTH];
            for i in 0..WIDTH {
                values[i] = sums[i].cast_signed() as f32 * (scale * scales[i]);
            }
            // SAFETY: as many values as sums.
            unsafe { self.write::<S, GATE>(s, row, values.as_ptr()) };
        }
    }

    /// Writes the values of a row.
    ///
    /// # Safety
    /// There are as many as columns of a panel.
    #[inline(always)]
    unsafe fn write<S: Simd, const GATE: bool>(&self, s: S, row: usize, values: *const f32) {
        let Block { product, out, .. } = *self.block;
        // Vectors of this instruction set may be shorter than a tile.
        let (width, step, other) = match GATE {
            true => (WORDS, S::LANES, WORDS),
            false => (WIDTH, 2 * S::LANES, S::LANES),
        };
        let (column, count) = product.place.panel(self.panel, width);
        let index = row * product.place.stride + column;
        // SAFETY: tasks own disjoint rows or panels.
        let out = unsafe { out.slice(index, count) };
        let bias = product.bias.map(|bias| &bias[self.panel * WIDTH..]);
        let bias = bias.and_then(<[f32]>::first_chunk::<WIDTH>);
        for part in 0..width / step {
            let first = part * step;
            if first >= count {
                break;
            }
            let part = &mut out[first..count.min(first + step)];
            // SAFETY: two vectors within the values.
            let mut vectors = unsafe {
                let values = values.add(first);
                [s.load(values), s.load(values.add(other))]
            };
            if let Some(bias) = bias {
                // SAFETY: as above.
                let added = unsafe {
                    let bias = bias.as_ptr().add(first);
                    [s.load(bias), s.load(bias.add(other))]
                };
                vectors = [s.add(vectors[0], added[0]), s.add(vectors[1], added[1])];
            }
            product.finish.write(s, index + first, part, vectors);
        }
    }
}
