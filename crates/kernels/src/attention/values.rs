//! Weighted sums of values.

use super::CHUNK;
use super::product::{Factors, Vectors, accumulate, accumulate_pairs};
use super::seen::Seen;
use super::task::{OutputPanel, Task, is_compiled};
use crate::cache::KvNumber;
use crate::simd::Simd;
use crate::simd::tile::{MAX_TILE_ROWS, Tile, by_height};
use std::ops::Range;

/// The `i`-th panel of the columns of values, for rows of the tile from `row` on.
#[derive(Clone, Copy)]
struct ValuePanel {
    i: usize,
    row: usize,
}

/// The values of adjacent slots of the chunk.
struct Run<N> {
    slots: Range<usize>,
    /// A pair of vectors for each of them.
    values: Vectors<N>,
}

impl<N> Run<N> {
    fn of(slots: Range<usize>, values: Vectors<N>) -> Self {
        Self { slots, values }
    }
}

impl<N: KvNumber> Task<'_, N> {
    /// Adds the weighted values of a panel to the queries of a tile: one for each of `seen`.
    #[inline(always)]
    pub(super) fn mix<S: Simd>(
        &mut self,
        s: S,
        output: OutputPanel,
        factors: &[f32; MAX_TILE_ROWS],
        seen: &[Seen],
    ) {
        let mut common = seen.iter().map(Seen::prefix).min().unwrap_or(0);
        if self.in_pairs::<S>() {
            // The pairs of a row do not depend on what other rows see.
            common -= common % 2;
        }
        by_height!(seen.len(), self.mix_common::<S, _>(s, output, factors, common));
        // Rows that see more slots continue separately, in the same order of slots.
        for (r, seen) in seen.iter().enumerate() {
            if seen.end > common {
                let start = self.output(output, S::LANES) + r * 2 * S::LANES;
                let panel = ValuePanel { i: output.i, row: r };
                let mut row = Tile::<S, 1>::zero(s);
                row.load(s, &self.scratch.o[start..]);
                for run in seen.runs(common) {
                    self.add_values(s, &mut row, panel, run);
                }
                row.store(s, &mut self.scratch.o[start..]);
            }
        }
    }

    /// Rescales the results of `R` queries, and adds the values of the slots below `common`, which all
    /// of them see.
    #[inline(always)]
    fn mix_common<S: Simd, const R: usize>(
        &mut self,
        s: S,
        output: OutputPanel,
        factors: &[f32; MAX_TILE_ROWS],
        common: usize,
    ) {
        // No such tile is asked for: this compiles none.
        if const { !is_compiled::<S, N>(R) } {
            return;
        }
        let start = self.output(output, S::LANES);
        let mut tile = Tile::<S, R>::zero(s);
        tile.load(s, &self.scratch.o[start..]);
        for (sums, factor) in tile.sums.iter_mut().zip(factors) {
            for sum in sums {
                *sum = s.mul(*sum, s.splat(*factor));
            }
        }
        let panel = ValuePanel { i: output.i, row: 0 };
        self.add_values(s, &mut tile, panel, 0..common);
        tile.store(s, &mut self.scratch.o[start..]);
    }

    /// Position of a panel of results.
    #[inline(always)]
    fn output(&self, panel: OutputPanel, lanes: usize) -> usize {
        (panel.i * self.scratch.max.len() + panel.query) * 2 * lanes
    }

    /// Adds a panel of the values of some slots of the chunk, weighted by the chunk's rows from
    /// the panel's row on.
    #[inline(always)]
    fn add_values<S: Simd, const R: usize>(
        &self,
        s: S,
        tile: &mut Tile<S, R>,
        ValuePanel { i, row: first }: ValuePanel,
        slots: Range<usize>,
    ) {
        let panel = 2 * S::LANES;
        let (numbers, stride, offset) = if self.values_in_place(panel) {
            (self.view.v, self.view.shape.c, i * panel)
        } else {
            (self.scratch.v.as_slice(), panel, i * CHUNK * panel)
        };
        let mut start = 0;
        for &(len, index) in &self.scratch.runs {
            let (low, high) = (slots.start.max(start), slots.end.min(start + len));
            if low < high {
                let low_index = index + (low - start) * stride + offset;
                let values = &numbers[low_index..low_index + (high - low - 1) * stride + panel];
                let values =
                    Vectors { low: values.as_ptr(), high: values[S::LANES..].as_ptr(), stride };
                // SAFETY: two vectors of values for each slot, `stride` apart.
                unsafe { self.add_run(s, tile, first, Run::of(low..high, values)) };
            }
            start += len;
            if start >= slots.end {
                break;
            }
        }
    }

    /// Adds the values of adjacent slots, weighted by the chunk's rows from `first` on.
    ///
    /// # Safety
    /// `values` has a pair of vectors for each slot.
    #[inline(always)]
    unsafe fn add_run<S: Simd, const R: usize>(
        &self,
        s: S,
        tile: &mut Tile<S, R>,
        first: usize,
        run: Run<N>,
    ) {
        let Run { slots, values } = run;
        if !self.in_pairs::<S>() {
            // SAFETY: the caller's promise.
            return unsafe { self.add_singly(s, tile, first, Run::of(slots, values)) };
        }
        let (start, end) = (slots.start.next_multiple_of(2), slots.end / 2 * 2);
        let skipped = start - slots.start;
        // A slot whose neighbour is hidden is added alone. Several rows together see whole pairs.
        if R == 1 && skipped > 0 {
            // SAFETY: as above.
            unsafe { self.add_singly(s, tile, first, Run::of(slots.start..start, values)) };
        }
        if start < end {
            let words = &self.scratch.words[1][first * CHUNK / 2..(first + R) * CHUNK / 2];
            let weights = Factors { first: words[start / 2..].as_ptr(), stride: CHUNK / 2 };
            // SAFETY: R rows of CHUNK / 2 words; as above.
            unsafe {
                let values = values.after(skipped);
                accumulate_pairs(s, tile, (end - start) / 2, weights, values);
            }
        }
        if R == 1 && start <= end && end < slots.end {
            // SAFETY: as above.
            unsafe {
                let values = values.after(end - slots.start);
                self.add_singly(s, tile, first, Run::of(end..slots.end, values));
            }
        }
    }

    /// The same, one slot after another.
    ///
    /// # Safety
    /// As [`Self::add_run`].
    #[inline(always)]
    unsafe fn add_singly<S: Simd, const R: usize>(
        &self,
        s: S,
        tile: &mut Tile<S, R>,
        first: usize,
        run: Run<N>,
    ) {
        let Run { slots, values } = run;
        let p = &self.scratch.p[first * CHUNK..(first + R) * CHUNK];
        let weights = Factors { first: p[slots.start..].as_ptr(), stride: CHUNK };
        // SAFETY: R rows of CHUNK weights; the caller's promise.
        unsafe { accumulate(s, tile, slots.len(), weights, values) };
    }
}
