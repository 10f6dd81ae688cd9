//! Ragged attention over paged keys and values.
//!
//! The context is folded in chunks of [`CHUNK`] slots, counted from slot 0 whatever the row
//! sees, with one running maximum and sum per row: a row's operations depend on its own query,
//! its `visible` and the slots below it, on nothing else. Rows that share a page table share
//! the gathering of keys and values.

use crate::parallel::{self, Shared};
use crate::simd::tile::{Tile, by_height};
use crate::simd::{InstructionSet, Kernel, Simd, dispatch_on, math};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, bail};
use std::ops::Range;

/// Slots folded at once. Part of the numerics: the running sums are rescaled per chunk.
const CHUNK: usize = 64;
/// Most and least query heads times rows of one task; no part of the numerics. Large tasks
/// gather keys and values less often, small ones keep more threads busy.
const QUERIES: (usize, usize) = (192, 48);
/// Multiply-adds of the scores below which threads cost more than they save.
const SERIAL_WORK: usize = 1 << 17;

/// The rows of one sequence under one page table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionSegment {
    /// Range of the batch's rows.
    pub rows: Range<u32>,
    /// Range of the batch's page tables: the physical pages in logical order.
    pub pages: Range<u32>,
}

/// Attention of every row to the slots `[0, visible)` of its segment: arguments `q [r, w]`
/// (query heads first, `w >= h * c`), key pool and value pool `[s, g, c]`; result
/// `[r, h * c]`, zero for a row that sees nothing.
pub struct PagedAttention<'a> {
    /// The segments, covering all rows.
    pub segments: &'a [AttentionSegment],
    /// Page tables of all segments.
    pub pages: &'a [u32],
    /// Slots each row sees, `[r]`.
    pub visible: &'a [u32],
    /// Slots of a page.
    pub page_size: usize,
    /// Query heads, a multiple of the pool's heads.
    pub heads: usize,
    /// Factor of the scores, `1 / sqrt(c)`.
    pub scale: f32,
}

impl CustomOp3 for PagedAttention<'_> {
    fn name(&self) -> &'static str {
        "paged-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, stride) = q_layout.shape().dims2()?;
        let (slots, groups, c) = k_layout.shape().dims3()?;
        if v_layout.shape() != k_layout.shape() {
            bail!("paged-attention: key and value pools differ in shape");
        }
        if groups == 0 || !self.heads.is_multiple_of(groups) || self.heads * c > stride {
            bail!(
                "paged-attention: {} heads of {c} over {groups}, rows of {stride}",
                self.heads
            );
        }
        self.check(rows, slots)?;
        let mut out = vec![0.0; rows * self.heads * c];
        let view = View {
            op: self,
            q: f32s(self.name(), q, q_layout)?,
            stride,
            k: f32s(self.name(), k, k_layout)?,
            v: f32s(self.name(), v, v_layout)?,
            groups,
            c,
            out: Shared::new(&mut out),
        };
        view.run(InstructionSet::detect());
        Ok((CpuStorage::F32(out), Shape::from((rows, self.heads * c))))
    }
}

impl PagedAttention<'_> {
    /// Whether everything that will be indexed exists.
    fn check(&self, rows: usize, slots: usize) -> Result<()> {
        let mut next = 0;
        for segment in self.segments {
            if segment.rows.start != next || segment.rows.end < next {
                bail!("paged-attention: segments do not follow one another at row {next}");
            }
            next = segment.rows.end;
            let Some(table) = self.pages.get(as_usize(&segment.pages)) else {
                bail!(
                    "paged-attention: page table {:?} is out of range",
                    segment.pages
                );
            };
            if let Some(page) = table
                .iter()
                .find(|&&p| (p as usize + 1) * self.page_size > slots)
            {
                bail!("paged-attention: page {page} lies outside the pool");
            }
            let Some(visible) = self.visible.get(as_usize(&segment.rows)) else {
                bail!("paged-attention: rows {:?} are out of range", segment.rows);
            };
            if visible
                .iter()
                .any(|&v| v as usize > table.len() * self.page_size)
            {
                bail!("paged-attention: a row sees more slots than its page table holds");
            }
        }
        if next as usize != rows || self.visible.len() != rows {
            bail!("paged-attention: segments end at row {next} of {rows}");
        }
        Ok(())
    }
}

fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The arguments as slices.
struct View<'a> {
    op: &'a PagedAttention<'a>,
    q: &'a [f32],
    stride: usize,
    k: &'a [f32],
    v: &'a [f32],
    groups: usize,
    c: usize,
    out: Shared<f32>,
}

impl View<'_> {
    fn run(&self, set: InstructionSet) {
        let share = self.op.heads / self.groups;
        let mut block = (QUERIES.0 / share).max(1);
        let count = |block: usize| {
            let rows = self
                .op
                .segments
                .iter()
                .map(|s| s.rows.len().div_ceil(block));
            rows.sum::<usize>() * self.groups
        };
        while block * share > QUERIES.1 && block > 1 && count(block) < 3 * parallel::threads() {
            block /= 2;
        }
        let mut tasks = Vec::new();
        for (index, segment) in self.op.segments.iter().enumerate() {
            let rows = as_usize(&segment.rows);
            for from in rows.clone().step_by(block) {
                let to = (from + block).min(rows.end);
                tasks.extend((0..self.groups).map(|group| (index, from..to, group)));
            }
        }
        let new_scratch = || Scratch::new(set.panel(), self.c, block * share);
        let run = |scratch: &mut Scratch, (segment, rows, group)| {
            dispatch_on(
                set,
                Task {
                    view: self,
                    segment,
                    rows,
                    group,
                    scratch,
                },
            );
        };
        let seen = self
            .op
            .visible
            .iter()
            .map(|&visible| visible as usize)
            .sum::<usize>();
        if seen * self.op.heads * self.c < SERIAL_WORK {
            let mut scratch = new_scratch();
            tasks.into_iter().for_each(|task| run(&mut scratch, task));
        } else {
            parallel::for_each_with(tasks.len(), new_scratch, |scratch, task| {
                run(scratch, tasks[task].clone());
            });
        }
    }
}

/// Buffers of one task, reused between tasks.
struct Scratch {
    /// Scaled queries `[queries, c]`, row by row, a row's heads side by side.
    q: Vec<f32>,
    /// Keys of a chunk, transposed: `[CHUNK / panel, c, panel]`.
    k: Vec<f32>,
    /// Values of a chunk: `[c / panel, CHUNK, panel]`, padded with zeros.
    v: Vec<f32>,
    /// Scores, then weights of one tile `[TILE_ROWS, CHUNK]`.
    p: Vec<f32>,
    /// Unnormalised results `[c / panel, queries, panel]`.
    o: Vec<f32>,
    /// Largest score so far, `[queries]`.
    max: Vec<f32>,
    /// Sum of weights so far, `[queries]`.
    sum: Vec<f32>,
}

impl Scratch {
    fn new(panel: usize, c: usize, queries: usize) -> Self {
        let wide = c.next_multiple_of(panel);
        Self {
            q: vec![0.0; queries * c],
            k: vec![0.0; CHUNK * c],
            v: vec![0.0; CHUNK * wide],
            p: vec![0.0; 12 * CHUNK],
            o: vec![0.0; queries * wide],
            max: vec![0.0; queries],
            sum: vec![0.0; queries],
        }
    }
}

/// Some rows of one segment with the query heads of one key head.
struct Task<'a> {
    view: &'a View<'a>,
    segment: usize,
    rows: Range<usize>,
    group: usize,
    scratch: &'a mut Scratch,
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.load_queries();
        let queries = self.rows.len() * self.share();
        let end = self
            .rows
            .clone()
            .map(|row| self.visible(row))
            .max()
            .unwrap_or(0);
        for start in (0..end).step_by(CHUNK) {
            self.gather(2 * S::LANES, start..(start + CHUNK).min(end));
            let mut query = 0;
            while query < queries {
                let height = S::TILE_ROWS.min(queries - query);
                by_height!(height, self.fold::<S, _>(s, query, start));
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

    fn visible(&self, row: usize) -> usize {
        self.view.op.visible[row] as usize
    }

    /// Slots of the chunk from `start` on that a query sees.
    fn seen(&self, query: usize, start: usize) -> usize {
        let row = self.rows.start + query / self.share();
        self.visible(row).saturating_sub(start).min(CHUNK)
    }

    fn load_queries(&mut self) {
        let (c, part) = (self.view.c, self.share() * self.view.c);
        for (i, row) in self.rows.clone().enumerate() {
            let from = row * self.view.stride + self.group * part;
            let scaled = self.view.q[from..from + part]
                .iter()
                .map(|x| x * self.view.op.scale);
            let to = &mut self.scratch.q[i * part..(i + 1) * part];
            to.iter_mut().zip(scaled).for_each(|(to, x)| *to = x);
        }
        let queries = self.rows.len() * part / c.max(1);
        self.scratch.max[..queries].fill(f32::NEG_INFINITY);
        self.scratch.sum[..queries].fill(0.0);
        self.scratch.o.fill(0.0);
    }

    /// Brings the keys and values of logical slots `slots` into the order that tiles read.
    fn gather(&mut self, panel: usize, slots: Range<usize>) {
        let (c, page_size) = (self.view.c, self.view.op.page_size);
        let table = &self.view.op.pages[as_usize(&self.view.op.segments[self.segment].pages)];
        for (j, slot) in slots.enumerate() {
            let physical = table[slot / page_size] as usize * page_size + slot % page_size;
            let at = (physical * self.view.groups + self.group) * c;
            let keys = &mut self.scratch.k[j / panel * panel * c + j % panel..];
            for (to, &x) in keys.iter_mut().step_by(panel).zip(&self.view.k[at..at + c]) {
                *to = x;
            }
            for (i, x) in self.view.v[at..at + c].chunks(panel).enumerate() {
                let to = (i * CHUNK + j) * panel;
                self.scratch.v[to..to + x.len()].copy_from_slice(x);
            }
        }
    }

    /// Folds the gathered chunk into `R` queries from `query` on.
    #[inline(always)]
    fn fold<S: Simd, const R: usize>(&mut self, s: S, query: usize, start: usize) {
        let (c, panel) = (self.view.c, 2 * S::LANES);
        let seen: [usize; R] = std::array::from_fn(|r| self.seen(query + r, start));
        let most = seen.iter().copied().max().unwrap_or(0);
        for i in 0..most.div_ceil(panel) {
            let mut tile = Tile::<S, R>::zero(s);
            let q = &self.scratch.q[query * c..(query + R) * c];
            let k = &self.scratch.k[i * panel * c..(i + 1) * panel * c];
            // SAFETY: q has R rows of c values, k has c rows of a panel.
            unsafe { tile.accumulate(s, c, (q.as_ptr(), c), k.as_ptr()) };
            for r in 0..R {
                let row = Tile::<S, 1> {
                    sums: [tile.sums[r]],
                };
                row.store(s, &mut self.scratch.p[r * CHUNK + i * panel..]);
            }
        }
        let mut factors = [1.0; R];
        for r in 0..R {
            factors[r] = self.weigh(s, r, query + r, seen[r]);
        }
        let common = seen.iter().copied().min().unwrap_or(0);
        for i in 0..c.div_ceil(panel) {
            self.mix::<S, R>(s, (i, query), factors, (common, seen));
        }
    }

    /// Turns the scores of row `r` of the tile into weights and returns the factor by which
    /// what the query has gathered so far must shrink.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, r: usize, query: usize, seen: usize) -> f32 {
        if seen == 0 {
            return 1.0;
        }
        let p = &mut self.scratch.p[r * CHUNK..(r + 1) * CHUNK];
        // The vector with the last seen slots; behind them lies anything, of weight zero.
        let last = (seen - 1) / S::LANES * S::LANES;
        let end = last + S::LANES;
        p[seen..end].fill(f32::NEG_INFINITY);
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
        // SAFETY: as above.
        total = s.add(total, unsafe { s.load(p.as_ptr().add(last)) });
        let factor = if max == before {
            1.0
        } else {
            (before - max).exp()
        };
        self.scratch.max[query] = max;
        self.scratch.sum[query] = self.scratch.sum[query] * factor + s.sum(total);
        factor
    }

    /// Adds the weighted values of one panel of columns to `R` queries.
    #[inline(always)]
    fn mix<S: Simd, const R: usize>(
        &mut self,
        s: S,
        (i, query): (usize, usize),
        factors: [f32; R],
        (common, seen): (usize, [usize; R]),
    ) {
        let panel = 2 * S::LANES;
        let queries = self.scratch.max.len();
        let Scratch { p, v, o, .. } = &mut *self.scratch;
        let v = &v[i * CHUNK * panel..(i + 1) * CHUNK * panel];
        let o = &mut o[(i * queries + query) * panel..(i * queries + query + R) * panel];
        let mut tile = Tile::<S, R>::zero(s);
        tile.load(s, o);
        for (sums, factor) in tile.sums.iter_mut().zip(factors) {
            *sums = sums_times(s, *sums, factor);
        }
        // SAFETY: p has R rows of CHUNK weights, v has CHUNK rows of a panel.
        unsafe { tile.accumulate(s, common, (p.as_ptr(), CHUNK), v.as_ptr()) };
        // Rows that see further go on alone, in the same order of slots.
        for (r, &seen) in seen.iter().enumerate().filter(|&(_, &seen)| seen > common) {
            let mut row = Tile::<S, 1> {
                sums: [tile.sums[r]],
            };
            // SAFETY: as above, from slot `common` on.
            unsafe {
                let p = p.as_ptr().add(r * CHUNK + common);
                row.accumulate(s, seen - common, (p, CHUNK), v.as_ptr().add(common * panel));
            }
            tile.sums[r] = row.sums[0];
        }
        tile.store(s, o);
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
                out.iter_mut()
                    .zip(o)
                    .for_each(|(out, x)| *out = x * inverse);
            }
        }
    }
}

/// Two vectors times one factor.
#[inline(always)]
fn sums_times<S: Simd>(s: S, [low, high]: [S::F; 2], factor: f32) -> [S::F; 2] {
    [s.mul(low, s.splat(factor)), s.mul(high, s.splat(factor))]
}

#[cfg(test)]
mod tests;
