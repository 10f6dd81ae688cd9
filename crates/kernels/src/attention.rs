//! Ragged attention over paged keys and values.
//!
//! The context is processed in chunks of [`CHUNK`] slots, always counted from slot 0, with one
//! running maximum and sum per row. A row's operations depend only on its own query and the slots
//! that it sees.

mod chunk;
mod product;
mod seen;
mod task;
mod values;
mod visible;

pub use visible::Visible;

use crate::cache::{KvNumber, Pool, PoolShape, by_number};
use crate::parallel::{self, Shared, filled};
use crate::simd::unit::has_bf16;
use crate::simd::{InstructionSet, dispatch_on, dispatch_pairs};
use crate::storage::numbers;
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, bail};
use half::bf16;
use std::mem::MaybeUninit;
use std::ops::Range;
use step::{PageId, Segment};
use task::{Scratch, Task};

/// Slots per chunk. Affects results: the running sums are rescaled per chunk.
const CHUNK: usize = 128;
/// Maximum and minimum queries (rows times query heads) of one task; does not affect results. Large
/// tasks read keys and values less often, small tasks use more threads. The queries and results of a
/// task and a chunk of keys and values fit in the L2 cache.
const QUERIES: (usize, usize) = (256, 48);
/// Multiply-adds of queries and keys below which a single thread is faster.
const SERIAL_WORK: usize = 1 << 17;

/// Attention of every row to the slots of its segment that it sees. Arguments: `q [r, w]` (query
/// heads first, `w >= h * c`), key pool and value pool (see [`Pool`]). Result: `[r, h * c]`, zero for
/// a row that sees no slots.
pub struct PagedAttention<'a> {
    /// The segments, covering all rows.
    pub segments: &'a [Segment],
    /// Page tables of all segments.
    pub pages: &'a [PageId],
    /// The slots that each row sees, `[r]`.
    pub visible: &'a [Visible],
    /// Number of query heads, a multiple of the pool's heads.
    pub heads: usize,
    /// Scale of the products of queries and keys, `1 / sqrt(c)`.
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
        let inputs = Inputs { q: (q, q_layout), k: (k, k_layout), v: (v, v_layout) };
        by_number!(k, self.name(), self.attend(inputs))
    }
}

/// The arguments as tensors.
struct Inputs<'a> {
    q: (&'a CpuStorage, &'a Layout),
    k: (&'a CpuStorage, &'a Layout),
    v: (&'a CpuStorage, &'a Layout),
}

impl PagedAttention<'_> {
    fn attend<N: KvNumber>(&self, inputs: Inputs<'_>) -> Result<(CpuStorage, Shape)> {
        let Inputs { q, k, v } = inputs;
        let (rows, stride) = q.1.shape().dims2()?;
        let shape = Pool::Keys.sizes::<N>(k.1)?;
        if Pool::Values.sizes::<N>(v.1)? != shape {
            bail!("paged-attention: key and value pools differ in shape");
        }
        let (num_kv_heads, c) = (shape.num_kv_heads, shape.c);
        if num_kv_heads == 0 || !self.heads.is_multiple_of(num_kv_heads) || self.heads * c > stride
        {
            bail!(
                "paged-attention: {} heads of {c} over {num_kv_heads}, rows of {stride}",
                self.heads
            );
        }
        self.check(rows, shape.pages, shape.page)?;
        let q = numbers(self.name(), q.0, q.1)?;
        let k = numbers::<N>(self.name(), k.0, k.1)?;
        let v = numbers::<N>(self.name(), v.0, v.1)?;
        let fill = |out| {
            let view = View { op: self, q, stride, k, v, shape, out };
            view.run(InstructionSet::detect(), has_bf16());
        };
        // SAFETY: tasks cover all rows of all segments, which are all rows, and all heads; each
        // writes all of its own.
        let out = unsafe { filled(rows * self.heads * c, fill) };
        Ok((CpuStorage::F32(out), Shape::from((rows, self.heads * c))))
    }

    /// Checks that all indices are in bounds.
    fn check(&self, rows: usize, pages: usize, page_size: usize) -> Result<()> {
        let mut next = 0;
        for segment in self.segments {
            if segment.rows.start != next || segment.rows.end < next {
                bail!("paged-attention: segments are not contiguous at row {next}");
            }
            next = segment.rows.end;
            let Some(table) = self.pages.get(as_usize(&segment.pages)) else {
                bail!("paged-attention: page table {:?} is out of range", segment.pages);
            };
            if let Some(page) = table.iter().find(|page| page.index() >= pages) {
                bail!("paged-attention: page {} is outside the pool of {pages} pages", page.0);
            }
            let Some(visible) = self.visible.get(as_usize(&segment.rows)) else {
                bail!("paged-attention: rows {:?} are out of range", segment.rows);
            };
            if visible.iter().any(|v| v.reach() > table.len() * page_size) {
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
struct View<'a, N> {
    op: &'a PagedAttention<'a>,
    q: &'a [f32],
    stride: usize,
    k: &'a [N],
    v: &'a [N],
    shape: PoolShape,
    out: Shared<MaybeUninit<f32>>,
}

impl<N: KvNumber> View<'_, N> {
    /// Computes with an instruction set, the widest one if `pairs`: then narrow keys and values are
    /// multiplied in pairs.
    fn run(&self, set: InstructionSet, pairs: bool) {
        let PoolShape { num_kv_heads, c, .. } = self.shape;
        let heads_per_kv_head = self.op.heads / num_kv_heads;
        let mut block = (QUERIES.0 / heads_per_kv_head).max(1);
        let blocks = |rows: usize, block: usize| rows.div_ceil(block);
        let count = |block: usize| {
            let segments = self.op.segments.iter();
            let counts = segments.map(|segment| blocks(segment.rows.len(), block));
            counts.sum::<usize>() * num_kv_heads
        };
        // The tasks of one segment are of one size; those of several need not be.
        let several = if self.op.segments.len() > 1 { 3 } else { 1 };
        let task_count = several * parallel::threads();
        while block * heads_per_kv_head > QUERIES.1 && block > 1 && count(block) < task_count {
            block /= 2;
        }
        let mut tasks = Vec::new();
        for (index, segment) in self.op.segments.iter().enumerate() {
            let rows = as_usize(&segment.rows);
            let even = rows.len().div_ceil(blocks(rows.len(), block).max(1)).max(1);
            for start in rows.clone().step_by(even) {
                let end = (start + even).min(rows.end);
                tasks.extend((0..num_kv_heads).map(|group| (index, start..end, group)));
            }
        }
        let new_scratch = || Scratch::new(set.panel(), c, block * heads_per_kv_head);
        let run = |scratch: &mut Scratch<N>, (segment, rows, group)| {
            let task = Task { view: self, segment, rows, group, scratch };
            if const { N::NARROW } && pairs {
                dispatch_pairs(task);
            } else {
                dispatch_on(set, task);
            }
        };
        let seen = self.op.visible.iter().map(Visible::reach).sum::<usize>();
        if seen * self.op.heads * c < SERIAL_WORK {
            let mut scratch = new_scratch();
            tasks.into_iter().for_each(|task| run(&mut scratch, task));
        } else {
            parallel::for_each_with(tasks.len(), new_scratch, |scratch, task| {
                run(scratch, tasks[task].clone());
            });
        }
    }
}

#[cfg(test)]
mod tests;
