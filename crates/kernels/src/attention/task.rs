//! Attention of some rows of one segment, for the query heads of one key head.

use super::product::{Factors, Vectors, accumulate, accumulate_pairs};
use super::seen::Seen;
use super::{CHUNK, View, Visible};
use crate::cache::KvNumber;
use crate::gemm::round_to_bf16;
use crate::simd::tile::{MAX_TILE_ROWS, Tile, by_height};
use crate::simd::{Kernel, MAX_LANES, Simd, math};
use std::ops::Range;

/// Lanes of the shortest vector of any instruction set.
const MIN_LANES: usize = 8;

/// The `i`-th panel of the columns of results, for queries from `query` on.
#[derive(Clone, Copy)]
pub(super) struct OutputPanel {
    pub(super) i: usize,
    pub(super) query: usize,
}

/// Buffers of one task, reused between tasks.
pub(super) struct Scratch<N> {
    /// Scaled queries `[queries, c]`, row by row with a row's heads contiguous.
    q: Vec<f32>,
    /// Keys of a chunk, if copied: `[CHUNK / LANES, c, LANES]`.
    pub(super) k: Vec<N>,
    /// Values of a chunk, if copied: `[c / panel, CHUNK, panel]`, padded with zeros.
    pub(super) v: Vec<N>,
    /// Scales of the keys and of the values of a chunk, in formats that have them.
    pub(super) scales: [[f32; CHUNK]; 2],
    /// Products of queries and keys, later attention weights, of one tile `[TILE_ROWS, CHUNK]`.
    pub(super) p: Vec<f32>,
    /// Queries and weights as words of two bf16 numbers: `[queries, c / 2]`, `[TILE_ROWS, CHUNK / 2]`.
    pub(super) words: [Vec<u32>; 2],
    /// Unnormalised results `[c / panel, queries, panel]`.
    pub(super) o: Vec<f32>,
    /// Largest product of the slots before, `[queries]`.
    pub(super) max: Vec<f32>,
    /// Sum of weights of the slots before, `[queries]`.
    sum: Vec<f32>,
    /// Offset of the keys of each vector of slots, in the pool or in `k`.
    pub(super) keys: [usize; CHUNK / MIN_LANES],
    /// Runs of slots with contiguous values: length and offset, in the pool or in `v`.
    pub(super) runs: Vec<(usize, usize)>,
}

impl<N: KvNumber> Scratch<N> {
    pub(super) fn new(panel: usize, c: usize, queries: usize) -> Self {
        let wide = c.next_multiple_of(panel);
        Self {
            q: vec![0.0; queries * c],
            k: vec![N::default(); CHUNK * c],
            v: vec![N::default(); CHUNK * wide],
            scales: [[0.0; CHUNK]; 2],
            p: vec![0.0; MAX_TILE_ROWS * CHUNK],
            words: [vec![0; queries * c / 2], vec![0; MAX_TILE_ROWS * CHUNK / 2]],
            o: vec![0.0; queries * wide],
            max: vec![0.0; queries],
            sum: vec![0.0; queries],
            keys: [0; CHUNK / MIN_LANES],
            runs: Vec::with_capacity(CHUNK),
        }
    }
}

/// Some rows of one segment with the query heads of one key head.
pub(super) struct Task<'a, N> {
    pub(super) view: &'a View<'a, N>,
    pub(super) segment: usize,
    pub(super) rows: Range<usize>,
    pub(super) group: usize,
    pub(super) scratch: &'a mut Scratch<N>,
}

impl<N: KvNumber> Kernel for Task<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.load_queries(2 * S::LANES);
        if self.in_pairs::<S>() {
            let Scratch { q, words, .. } = &mut *self.scratch;
            round_to_bf16(q, &mut words[0]);
        }
        let queries = self.rows.len() * self.heads_per_kv_head();
        let rows = &self.view.op.visible[self.rows.clone()];
        let end = rows.iter().map(Visible::reach).max().unwrap_or(0);
        for start in (0..end).step_by(CHUNK) {
            let slots = start..(start + CHUNK).min(end);
            self.prefetch(s, slots.clone());
            self.find_keys(S::LANES, slots.clone());
            self.find_values(2 * S::LANES, slots.clone());
            self.read_scales(slots.clone());
            let mut query = 0;
            while query < queries {
                let height = tile_height::<S, N>(queries - query);
                self.fold(s, query..query + height, slots.clone());
                query += height;
            }
        }
        self.write(2 * S::LANES);
    }
}

/// The `i`-th pair of vectors of slots of a chunk.
#[derive(Clone, Copy)]
struct KeyPair<N> {
    i: usize,
    keys: Vectors<N>,
}

/// True if tiles of this number of rows are compiled: few heights where narrow numbers are widened, which is
/// for processors without AVX-512 BF16.
pub(super) const fn is_compiled<S: Simd, N: KvNumber>(rows: usize) -> bool {
    let few = N::NARROW && !S::PAIRS;
    let fits = match rows {
        1 | 4 => true,
        2 | 8 => !few,
        6 | 12 => rows == S::TILE_ROWS,
        _ => false,
    };
    fits && rows <= S::TILE_ROWS
}

/// Rows of the next tile: the tallest of those compiled.
fn tile_height<S: Simd, N: KvNumber>(left: usize) -> usize {
    let fits = |height: &usize| *height <= left && is_compiled::<S, N>(*height);
    [12, 8, 6, 4, 2].into_iter().find(fits).unwrap_or(1)
}

impl<N: KvNumber> Task<'_, N> {
    /// Query heads per KV head.
    fn heads_per_kv_head(&self) -> usize {
        self.view.op.heads / self.view.shape.num_kv_heads
    }

    /// True if numbers are multiplied in pairs. Then queries and weights are rounded to bf16, except for
    /// the weight of a slot whose neighbour is not visible.
    #[inline(always)]
    pub(super) fn in_pairs<S: Simd>(&self) -> bool {
        let (c, page) = (self.view.shape.c, self.view.shape.page);
        S::PAIRS && N::NARROW && c.is_multiple_of(2) && page.is_multiple_of(2)
    }

    /// The slots that a query sees in the chunk that starts at slot `start`.
    fn seen(&self, query: usize, start: usize) -> Seen {
        let row = self.rows.start + query / self.heads_per_kv_head();
        Seen::of(self.view.op.visible[row], start)
    }

    fn load_queries(&mut self, panel: usize) {
        let (c, width) = (self.view.shape.c, self.heads_per_kv_head() * self.view.shape.c);
        for (i, row) in self.rows.clone().enumerate() {
            let start = row * self.view.stride + self.group * width;
            let scaled = self.view.q[start..start + width].iter().map(|x| x * self.view.op.scale);
            let queries = &mut self.scratch.q[i * width..(i + 1) * width];
            queries.iter_mut().zip(scaled).for_each(|(query, x)| *query = x);
        }
        let queries = self.rows.len() * width / c.max(1);
        self.scratch.max[..queries].fill(f32::NEG_INFINITY);
        self.scratch.sum[..queries].fill(0.0);
        let Scratch { o, max, .. } = &mut *self.scratch;
        for o in o.chunks_exact_mut(max.len() * panel) {
            o[..queries * panel].fill(0.0);
        }
    }

    /// Processes the chunk of `slots` for the queries of a tile.
    #[inline(always)]
    fn fold<S: Simd>(&mut self, s: S, queries: Range<usize>, slots: Range<usize>) {
        let mut seen = [Seen::default(); MAX_TILE_ROWS];
        let seen = &mut seen[..queries.len()];
        for (seen, query) in seen.iter_mut().zip(queries.clone()) {
            *seen = self.seen(query, slots.start);
        }
        let most = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        let vectors = slots.len().div_ceil(S::LANES);
        for i in 0..most.div_ceil(2 * S::LANES) {
            let keys = self.keys(S::LANES, i, vectors);
            let keys = KeyPair { i, keys };
            by_height!(queries.len(), self.multiply_keys::<S, _>(s, queries.start, keys));
        }
        let mut factors = [1.0; MAX_TILE_ROWS];
        for (r, (factor, seen)) in factors.iter_mut().zip(&*seen).enumerate() {
            *factor = self.weigh(s, r, queries.start + r, *seen);
        }
        for i in 0..self.view.shape.c.div_ceil(2 * S::LANES) {
            let query = queries.start;
            self.mix(s, OutputPanel { i, query }, &factors, seen);
        }
    }

    /// Writes the products of `R` queries, from `query` on, and the keys of a pair of vectors of slots.
    #[inline(always)]
    fn multiply_keys<S: Simd, const R: usize>(&mut self, s: S, query: usize, pair: KeyPair<N>) {
        // No such tile is asked for: this compiles none.
        if const { !is_compiled::<S, N>(R) } {
            return;
        }
        let (c, KeyPair { i, keys }) = (self.view.shape.c, pair);
        let mut tile = Tile::<S, R>::zero(s);
        if self.in_pairs::<S>() {
            let words = &self.scratch.words[0][query * c / 2..(query + R) * c / 2];
            let queries = Factors { first: words.as_ptr(), stride: c / 2 };
            // SAFETY: R rows of c / 2 words, the vectors c numbers each.
            unsafe { accumulate_pairs(s, &mut tile, c / 2, queries, keys) };
        } else {
            let q = &self.scratch.q[query * c..(query + R) * c];
            let queries = Factors { first: q.as_ptr(), stride: c };
            // SAFETY: q has R rows of c values, the vectors c numbers each.
            unsafe { accumulate(s, &mut tile, c, queries, keys) };
        }
        self.scale_products(s, &mut tile, i);
        for r in 0..R {
            let row = Tile::<S, 1> { sums: [tile.sums[r]] };
            row.store(s, &mut self.scratch.p[r * CHUNK + i * 2 * S::LANES..]);
        }
    }

    /// Multiplies the products of the `i`-th pair of vectors of slots by the scales of the keys.
    #[inline(always)]
    fn scale_products<S: Simd, const R: usize>(&self, s: S, tile: &mut Tile<S, R>, i: usize) {
        if N::SCALE == 0 {
            return;
        }
        for half in 0..2 {
            let scales = &self.scratch.scales[0][(2 * i + half) * S::LANES..][..S::LANES];
            // SAFETY: LANES scales.
            let scales = unsafe { s.load(scales.as_ptr()) };
            for sums in &mut tile.sums {
                sums[half] = s.mul(sums[half], scales);
            }
        }
    }

    /// Multiplies the weights of row `r` of the tile by the scales of the values.
    #[inline(always)]
    fn scale_weights<S: Simd>(&mut self, s: S, r: usize, seen: Seen) {
        if N::SCALE == 0 {
            return;
        }
        let end = seen.end.next_multiple_of(S::LANES);
        let p = &mut self.scratch.p[r * CHUNK..(r + 1) * CHUNK];
        let scales = &self.scratch.scales[1];
        for i in (0..end).step_by(S::LANES) {
            // SAFETY: i + LANES <= end <= CHUNK.
            unsafe {
                let scaled = s.mul(s.load(p.as_ptr().add(i)), s.load(scales.as_ptr().add(i)));
                s.store(p.as_mut_ptr().add(i), scaled);
            }
        }
        // The scale of a slot that is not visible may be any number.
        p[seen.end..end].fill(0.0);
        seen.hide(p, 0.0);
    }

    /// Converts the products of row `r` of the tile to attention weights. Returns the factor that rescales the
    /// query's previous result.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, r: usize, query: usize, seen: Seen) -> f32 {
        let reach = seen.end;
        if reach == 0 {
            return 1.0;
        }
        let p = &mut self.scratch.p[r * CHUNK..(r + 1) * CHUNK];
        // The vector with the last visible slot; later lanes get weight zero.
        let last = (reach - 1) / S::LANES * S::LANES;
        let end = last + S::LANES;
        p[reach..end].fill(f32::NEG_INFINITY);
        seen.hide(p, f32::NEG_INFINITY);
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
        p[reach..end].fill(0.0);
        // A hidden slot of an earlier vector has added less than any sum can hold.
        seen.hide(p, 0.0);
        // SAFETY: as above.
        total = s.add(total, unsafe { s.load(p.as_ptr().add(last)) });
        let mut factors = [1.0; MAX_LANES];
        if max != before {
            // If the previous result is zero, the factor does not matter.
            let factor = math::exp(s, s.splat(before - max));
            // SAFETY: LANES <= MAX_LANES.
            unsafe { s.store(factors.as_mut_ptr(), factor) };
        }
        self.scale_weights(s, r, seen);
        if self.in_pairs::<S>() {
            let Scratch { p, words, .. } = &mut *self.scratch;
            let words = &mut words[1][r * CHUNK / 2..(r + 1) * CHUNK / 2];
            round_to_bf16(&p[r * CHUNK..r * CHUNK + end], words);
        }
        self.scratch.max[query] = max;
        self.scratch.sum[query] = self.scratch.sum[query] * factors[0] + s.sum(total);
        factors[0]
    }

    fn write(&mut self, panel: usize) {
        let (c, heads_per_kv_head, queries) =
            (self.view.shape.c, self.heads_per_kv_head(), self.scratch.max.len());
        for query in 0..self.rows.len() * heads_per_kv_head {
            let sum = self.scratch.sum[query];
            let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let row = self.rows.start + query / heads_per_kv_head;
            let head = self.group * heads_per_kv_head + query % heads_per_kv_head;
            // SAFETY: each task has its own rows and heads.
            let out = unsafe { self.view.out.slice((row * self.view.op.heads + head) * c, c) };
            for (i, out) in out.chunks_mut(panel).enumerate() {
                let o = &self.scratch.o[(i * queries + query) * panel..];
                out.iter_mut().zip(o).for_each(|(out, x)| {
                    out.write(x * inverse);
                });
            }
        }
    }
}
