//! Attention of some rows of one segment, for the query heads of one key head.
//!
//! Keys and values are read in place. A chunk is copied into an order for vector loads only if the
//! slots of a page are not a multiple of a vector, or a head is not a multiple of a panel.

use super::seen::Seen;
use super::{CHUNK, View, Visible, as_usize};
use crate::simd::dot::{Columns, RowPointer};
use crate::simd::tile::{Tile, by_height};
use crate::simd::{Kernel, MAX_LANES, Simd, math};
use std::ops::Range;

/// Lanes of the shortest vector of any instruction set.
const MIN_LANES: usize = 8;

/// Buffers of one task, reused between tasks.
pub(super) struct Scratch {
    /// Scaled queries `[queries, c]`, row by row with a row's heads contiguous.
    q: Vec<f32>,
    /// Keys of a chunk, if copied: `[CHUNK / LANES, c, LANES]`.
    k: Vec<f32>,
    /// Values of a chunk, if copied: `[c / panel, CHUNK, panel]`, padded with zeros.
    v: Vec<f32>,
    /// Scores, later weights, of one tile `[TILE_ROWS, CHUNK]`.
    p: Vec<f32>,
    /// Unnormalised results `[c / panel, queries, panel]`.
    o: Vec<f32>,
    /// Largest score so far, `[queries]`.
    max: Vec<f32>,
    /// Sum of weights so far, `[queries]`.
    sum: Vec<f32>,
    /// Offset of the keys of each vector of slots, in the pool or in `k`.
    keys: [usize; CHUNK / MIN_LANES],
    /// Runs of slots with contiguous values: length and offset, in the pool or in `v`.
    runs: Vec<(usize, usize)>,
}

impl Scratch {
    pub(super) fn new(panel: usize, c: usize, queries: usize) -> Self {
        let wide = c.next_multiple_of(panel);
        Self {
            q: vec![0.0; queries * c],
            k: vec![0.0; CHUNK * c],
            v: vec![0.0; CHUNK * wide],
            p: vec![0.0; 12 * CHUNK],
            o: vec![0.0; queries * wide],
            max: vec![0.0; queries],
            sum: vec![0.0; queries],
            keys: [0; CHUNK / MIN_LANES],
            runs: Vec::with_capacity(CHUNK),
        }
    }
}

/// Some rows of one segment with the query heads of one key head.
pub(super) struct Task<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) segment: usize,
    pub(super) rows: Range<usize>,
    pub(super) group: usize,
    pub(super) scratch: &'a mut Scratch,
}

/// The `i`-th panel of the columns of values, for rows from `row` on.
#[derive(Clone, Copy)]
struct ValuePanel {
    i: usize,
    row: usize,
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.load_queries(2 * S::LANES);
        let queries = self.rows.len() * self.share();
        let rows = &self.view.op.visible[self.rows.clone()];
        let end = rows.iter().map(Visible::reach).max().unwrap_or(0);
        for start in (0..end).step_by(CHUNK) {
            let slots = start..(start + CHUNK).min(end);
            self.find_keys(S::LANES, slots.clone());
            self.find_values(2 * S::LANES, slots.clone());
            let mut query = 0;
            while query < queries {
                let height = S::TILE_ROWS.min(queries - query);
                by_height!(height, self.fold::<S, _>(s, query, slots.clone()));
                query += height;
            }
        }
        self.write(2 * S::LANES);
    }
}

impl Task<'_> {
    /// Query heads per key head.
    fn share(&self) -> usize {
        self.view.op.heads / self.view.groups
    }

    /// What a query sees of the chunk that starts at slot `start`.
    fn seen(&self, query: usize, start: usize) -> Seen {
        let row = self.rows.start + query / self.share();
        Seen::of(self.view.op.visible[row], start)
    }

    fn load_queries(&mut self, panel: usize) {
        let (c, width) = (self.view.c, self.share() * self.view.c);
        for (i, row) in self.rows.clone().enumerate() {
            let from = row * self.view.stride + self.group * width;
            let scaled = self.view.q[from..from + width]
                .iter()
                .map(|x| x * self.view.op.scale);
            let to = &mut self.scratch.q[i * width..(i + 1) * width];
            to.iter_mut().zip(scaled).for_each(|(to, x)| *to = x);
        }
        let queries = self.rows.len() * width / c.max(1);
        self.scratch.max[..queries].fill(f32::NEG_INFINITY);
        self.scratch.sum[..queries].fill(0.0);
        let Scratch { o, max, .. } = &mut *self.scratch;
        for o in o.chunks_exact_mut(max.len() * panel) {
            o[..queries * panel].fill(0.0);
        }
    }

    /// Offset of this key head in the page of a logical slot, in either pool.
    fn page_of(&self, slot: usize) -> usize {
        let table = &self.view.op.pages[as_usize(&self.view.op.segments[self.segment].pages)];
        let page = table[slot / self.view.page] as usize;
        (page * self.view.groups + self.group) * self.view.c * self.view.page
    }

    /// Whether vectors of slots can be read from the key pool in place.
    fn keys_in_place(&self, lanes: usize) -> bool {
        self.view.page.is_multiple_of(lanes)
    }

    /// Whether panels of a head can be read from the value pool in place.
    fn values_in_place(&self, panel: usize) -> bool {
        self.view.c.is_multiple_of(panel)
    }

    /// Locates the keys of the logical slots `slots`, or copies them.
    fn find_keys(&mut self, lanes: usize, slots: Range<usize>) {
        let (c, page) = (self.view.c, self.view.page);
        if self.keys_in_place(lanes) {
            for (vector, slot) in slots.step_by(lanes).enumerate() {
                self.scratch.keys[vector] = self.page_of(slot) + slot % page;
            }
            return;
        }
        for vector in 0..slots.len().div_ceil(lanes) {
            self.scratch.keys[vector] = vector * lanes * c;
        }
        for (j, slot) in slots.enumerate() {
            let from = self.view.k[self.page_of(slot) + slot % page..].iter();
            let to = &mut self.scratch.k[j / lanes * lanes * c + j % lanes..];
            let numbers = to.iter_mut().step_by(lanes).zip(from.step_by(page));
            numbers.take(c).for_each(|(to, &x)| *to = x);
        }
    }

    /// Locates the values of the logical slots `slots`, or copies them.
    fn find_values(&mut self, panel: usize, slots: Range<usize>) {
        let (c, page) = (self.view.c, self.view.page);
        self.scratch.runs.clear();
        if !self.values_in_place(panel) {
            self.scratch.runs.push((slots.len(), 0));
        }
        let mut slot = slots.start;
        while slot < slots.end {
            let len = (page - slot % page).min(slots.end - slot);
            let at = self.page_of(slot) + slot % page * c;
            if self.values_in_place(panel) {
                self.scratch.runs.push((len, at));
            } else {
                for (j, value) in self.view.v[at..at + len * c].chunks_exact(c).enumerate() {
                    for (i, x) in value.chunks(panel).enumerate() {
                        let to = (i * CHUNK + slot - slots.start + j) * panel;
                        self.scratch.v[to..to + x.len()].copy_from_slice(x);
                    }
                }
            }
            slot += len;
        }
    }

    /// Keys of the `i`-th pair of vectors of slots in a chunk of `vectors` vectors.
    #[inline(always)]
    fn keys(&self, lanes: usize, i: usize, vectors: usize) -> Columns {
        let (from, stride) = if self.keys_in_place(lanes) {
            (self.view.k, self.view.page)
        } else {
            (self.scratch.k.as_slice(), lanes)
        };
        let reach = (self.view.c - 1) * stride + lanes;
        let vector = |vector: usize| {
            let at = self.scratch.keys[vector];
            from[at..at + reach].as_ptr().cast()
        };
        Columns {
            low: vector(2 * i),
            // No slot of the second vector is visible if the last vector is single: the keys do not
            // matter.
            high: vector((2 * i + 1).min(vectors - 1)),
            stride,
            ahead: Columns::NOTHING,
        }
    }

    /// Processes the chunk of `slots` for `R` queries, starting with `query`.
    #[inline(always)]
    fn fold<S: Simd, const R: usize>(&mut self, s: S, query: usize, slots: Range<usize>) {
        let (c, panel) = (self.view.c, 2 * S::LANES);
        let mut seen = [Seen::default(); R];
        for (r, seen) in seen.iter_mut().enumerate() {
            *seen = self.seen(query + r, slots.start);
        }
        let most = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        for i in 0..most.div_ceil(panel) {
            let mut tile = Tile::<S, R>::zero(s);
            let q = &self.scratch.q[query * c..(query + R) * c];
            let keys = self.keys(S::LANES, i, slots.len().div_ceil(S::LANES));
            let queries = RowPointer {
                first: q.as_ptr().cast(),
                stride: c,
            };
            // SAFETY: q has R rows of c values, the vectors c words each.
            unsafe { tile.accumulate(s, c, queries, keys) };
            for r in 0..R {
                let row = Tile::<S, 1> {
                    sums: [tile.sums[r]],
                };
                row.store(s, &mut self.scratch.p[r * CHUNK + i * panel..]);
            }
        }
        let mut factors = [1.0; R];
        for (r, factor) in factors.iter_mut().enumerate() {
            *factor = self.weigh(s, r, query + r, seen[r]);
        }
        for i in 0..c.div_ceil(panel) {
            self.mix::<S, R>(s, ValuePanel { i, row: query }, factors, seen);
        }
    }

    /// Converts the scores of row `r` of the tile to weights. Returns the factor that rescales the
    /// query's previous result.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, r: usize, query: usize, of: Seen) -> f32 {
        let seen = of.end;
        if seen == 0 {
            return 1.0;
        }
        let p = &mut self.scratch.p[r * CHUNK..(r + 1) * CHUNK];
        // The vector with the last visible slot; later lanes get weight zero.
        let last = (seen - 1) / S::LANES * S::LANES;
        let end = last + S::LANES;
        p[seen..end].fill(f32::NEG_INFINITY);
        of.hide(p, f32::NEG_INFINITY);
        let mut largest = s.splat(f32::NEG_INFINITY);
        for i in (0..end).step_by(S::LANES) {
            // SAFETY: i + LANES <= end <= CHUNK.
            largest = s.max(largest, unsafe { s.load(p.as_ptr().add(i)) });
        }
        let before = self.scratch.max[query];
        let max = s.largest(largest).max(before);
        let mut total = s.splat(0.0);
        for i in (0..end).step_by(S::LANES) {
            // SAFETY: as above.
            unsafe {
                let x = s.sub(s.load(p.as_ptr().add(i)), s.splat(max));
                let weight = math::exp(s, x);
                s.store(p.as_mut_ptr().add(i), weight);
                if i < last {
                    total = s.add(total, weight);
                }
            }
        }
        p[seen..end].fill(0.0);
        // A hidden slot of an earlier vector has added less than any sum can hold.
        of.hide(p, 0.0);
        // SAFETY: as above.
        total = s.add(total, unsafe { s.load(p.as_ptr().add(last)) });
        let mut factors = [1.0; MAX_LANES];
        if max != before {
            // If the previous result is zero, the factor does not matter.
            let factor = math::exp(s, s.splat(before - max));
            // SAFETY: LANES <= MAX_LANES.
            unsafe { s.store(factors.as_mut_ptr(), factor) };
        }
        self.scratch.max[query] = max;
        self.scratch.sum[query] = self.scratch.sum[query] * factors[0] + s.sum(total);
        factors[0]
    }

    /// Adds the weighted values of one panel of columns to `R` queries.
    #[inline(always)]
    fn mix<S: Simd, const R: usize>(
        &mut self,
        s: S,
        at: ValuePanel,
        factors: [f32; R],
        seen: [Seen; R],
    ) {
        let ValuePanel { i, row: query } = at;
        let panel = 2 * S::LANES;
        let at = (i * self.scratch.max.len() + query) * panel;
        let mut tile = Tile::<S, R>::zero(s);
        tile.load(s, &self.scratch.o[at..at + R * panel]);
        for (sums, factor) in tile.sums.iter_mut().zip(factors) {
            for sum in sums {
                *sum = s.mul(*sum, s.splat(factor));
            }
        }
        let common = seen.iter().map(Seen::prefix).min().unwrap_or(0);
        self.add_values(s, &mut tile, ValuePanel { i, row: 0 }, 0..common);
        // Rows that see more slots continue separately, in the same order of slots.
        for (r, seen) in seen.iter().enumerate() {
            if seen.end > common {
                let mut row = Tile::<S, 1> {
                    sums: [tile.sums[r]],
                };
                for run in seen.runs(common) {
                    self.add_values(s, &mut row, ValuePanel { i, row: r }, run);
                }
                tile.sums[r] = row.sums[0];
            }
        }
        tile.store(s, &mut self.scratch.o[at..at + R * panel]);
    }

    /// Adds a panel of the values of some slots of the chunk, weighted by the chunk's rows from
    /// `at.row` on.
    #[inline(always)]
    fn add_values<S: Simd, const R: usize>(
        &self,
        s: S,
        tile: &mut Tile<S, R>,
        at: ValuePanel,
        slots: Range<usize>,
    ) {
        let ValuePanel { i, row: first } = at;
        let panel = 2 * S::LANES;
        let (from, stride, offset) = if self.values_in_place(panel) {
            (self.view.v, self.view.c, i * panel)
        } else {
            (self.scratch.v.as_slice(), panel, i * CHUNK * panel)
        };
        let p = &self.scratch.p[first * CHUNK..(first + R) * CHUNK];
        let mut start = 0;
        for &(len, at) in &self.scratch.runs {
            let (low, high) = (slots.start.max(start), slots.end.min(start + len));
            if low < high {
                let at = at + (low - start) * stride + offset;
                let values = &from[at..at + (high - low - 1) * stride + panel];
                let values = Columns {
                    stride,
                    ..Columns::panel(values.as_ptr().cast(), S::LANES)
                };
                let weights = RowPointer {
                    first: p[low..].as_ptr().cast(),
                    stride: CHUNK,
                };
                // SAFETY: R rows of CHUNK weights; values of two vectors, `stride` apart.
                unsafe { tile.accumulate(s, high - low, weights, values) };
            }
            start += len;
            if start >= slots.end {
                break;
            }
        }
    }

    fn write(&mut self, panel: usize) {
        let (c, share, queries) = (self.view.c, self.share(), self.scratch.max.len());
        for query in 0..self.rows.len() * share {
            let sum = self.scratch.sum[query];
            let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let row = self.rows.start + query / share;
            let head = self.group * share + query % share;
            // SAFETY: each task has its own rows and heads.
            let out = unsafe { self.view.out.part((row * self.view.op.heads + head) * c, c) };
            for (i, out) in out.chunks_mut(panel).enumerate() {
                let o = &self.scratch.o[(i * queries + query) * panel..];
                out.iter_mut().zip(o).for_each(|(out, x)| {
                    out.write(x * inverse);
                });
            }
        }
    }
}
