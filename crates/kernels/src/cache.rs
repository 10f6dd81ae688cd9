//! The physical KV pool and in-place writes to it.
//!
//! A pool of pages of `p` slots is `[pages, g, c, p]` for keys and `[pages, g, p, c]` for values.
//! Attention reads keys as vectors over slots, one per element of a key, and values as complete
//! vectors per slot; in both layouts this memory is contiguous.
//!
//! A pool in int8 has `c + 4` columns: a page of a head is its `c * p` bytes, then one f32 scale per
//! slot. So a copied page takes its scales along.

mod dtype;
mod number;

pub use dtype::{KvDtype, KvSizes};
pub(crate) use number::KvNumber;

use crate::parallel::{self, Shared};
use crate::storage::{numbers, numbers_mut};
use candle_core::{
    CpuStorage, DType, Device, InplaceOp1, InplaceOp2, Layout, Result, Tensor, bail,
};
use half::bf16;
use half::vec::HalfBitsVecExt;
use std::ops::Range;
use step::PageCopy;

/// Number of elements below which a single thread writes all.
const SERIAL_ELEMENTS: usize = 1 << 15;
/// Maximum rows with consecutive slots that are written together.
const RUN: usize = 64;

/// The kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// `[pages, g, c, p]`.
    Keys,
    /// `[pages, g, p, c]`.
    Values,
}

impl Pool {
    /// The shape of a pool's tensor in f32 or bf16; in int8, `c` counts the scale too.
    pub fn shape(self, pages: usize, num_kv_heads: usize, c: usize, page: usize) -> [usize; 4] {
        match self {
            Self::Keys => [pages, num_kv_heads, c, page],
            Self::Values => [pages, num_kv_heads, page, c],
        }
    }

    /// A zeroed pool of one layer, whose memory the system gives when pages are first written.
    pub fn zeros(self, sizes: &KvSizes) -> Result<Tensor> {
        let (dtype, columns) = sizes.dtype.stored(sizes.head_width);
        let shape = self.shape(sizes.pages, sizes.num_kv_heads, columns, sizes.page);
        match dtype {
            // candle writes the zeros of this type itself, which takes the memory at once.
            DType::BF16 => {
                let zeros: Vec<bf16> = vec![0_u16; shape.iter().product()].reinterpret_into();
                Tensor::from_vec(zeros, shape.as_slice(), &Device::Cpu)
            }
            dtype => Tensor::zeros(shape.as_slice(), dtype, &Device::Cpu),
        }
    }

    /// The sizes of a tensor of this kind with numbers `N`.
    pub(crate) fn sizes<N: KvNumber>(self, layout: &Layout) -> Result<PoolShape> {
        let (pages, num_kv_heads, rows, columns) = layout.shape().dims4()?;
        let (wide, page) = match self {
            Self::Keys => (rows, columns),
            Self::Values => (columns, rows),
        };
        let Some(c) = wide.checked_sub(N::SCALE) else {
            bail!("a head of {wide} columns has no room for its scale");
        };
        Ok(PoolShape { pages, num_kv_heads, c, page, block: wide * page })
    }
}

/// The sizes of a pool of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    pub(crate) pages: usize,
    /// Key/value heads.
    pub(crate) num_kv_heads: usize,
    /// Head width.
    pub(crate) c: usize,
    /// Slots per page.
    pub(crate) page: usize,
    /// Numbers of one head in a page, with scales.
    pub(crate) block: usize,
}

/// Calls `$f::<N>` with the type `N` of a pool's numbers.
macro_rules! by_number {
    ($storage:expr, $op:expr, $this:ident.$f:ident($($arg:expr),*)) => {
        match $storage {
            CpuStorage::F32(_) => $this.$f::<f32>($($arg),*),
            CpuStorage::BF16(_) => $this.$f::<bf16>($($arg),*),
            CpuStorage::U8(_) => $this.$f::<u8>($($arg),*),
            _ => bail!("{}: expected a pool in f32, bf16 or int8", $op),
        }
    };
}
pub(crate) use by_number;

/// Writes `g * c` columns of every row of a tensor `[r, w]` to the row's slot in a pool.
pub struct WriteRows<'a> {
    /// The kind of the pool.
    pub pool: Pool,
    /// Physical slot of each row, `[r]`: page times slots per page, plus the offset in the page.
    pub slots: &'a [u32],
    /// The first of the `g * c` columns.
    pub column: usize,
}

impl InplaceOp2 for WriteRows<'_> {
    fn name(&self) -> &'static str {
        "write-rows"
    }

    fn cpu_fwd(
        &self,
        pool: &mut CpuStorage,
        pool_layout: &Layout,
        rows: &CpuStorage,
        rows_layout: &Layout,
    ) -> Result<()> {
        by_number!(pool, self.name(), self.write(pool, pool_layout, rows, rows_layout))
    }
}

impl WriteRows<'_> {
    fn write<N: KvNumber>(
        &self,
        pool: &mut CpuStorage,
        pool_layout: &Layout,
        rows: &CpuStorage,
        rows_layout: &Layout,
    ) -> Result<()> {
        let shape = self.pool.sizes::<N>(pool_layout)?;
        let (count, width) = rows_layout.shape().dims2()?;
        let (columns, slots) = (shape.num_kv_heads * shape.c, shape.pages * shape.page);
        let pool = numbers_mut::<N>(self.name(), pool, pool_layout)?;
        let rows = numbers(self.name(), rows, rows_layout)?;
        if self.slots.len() != count || self.column + columns > width {
            bail!(
                "write-rows: {} slots, {columns} columns from {} on for [{count}, {width}]",
                { self.slots.len() },
                self.column
            );
        }
        if let Some(slot) = self.slots.iter().find(|&&s| s as usize >= slots) {
            bail!("write-rows: slot {slot} of {slots}");
        }
        let write = Write { op: self, rows, width, shape, pool: Shared::new(pool) };
        if count * columns < SERIAL_ELEMENTS {
            (0..shape.num_kv_heads).for_each(|group| write.group(group));
        } else {
            parallel::for_each(shape.num_kv_heads, |group| write.group(group));
        }
        Ok(())
    }
}

/// The arguments of a write as slices. Each task writes one key head; the memory of different heads
/// is disjoint for any slots.
struct Write<'a, N> {
    op: &'a WriteRows<'a>,
    rows: &'a [f32],
    width: usize,
    shape: PoolShape,
    pool: Shared<N>,
}

impl<N: KvNumber> Write<'_, N> {
    /// Writes one head of all rows in order.
    fn group(&self, group: usize) {
        let PoolShape { num_kv_heads, c, page, block, .. } = self.shape;
        let slots = self.op.slots;
        let mut row = 0;
        while row < slots.len() {
            let (index, offset) = (slots[row] as usize / page, slots[row] as usize % page);
            // Rows with consecutive slots in the page.
            let run = slots[row..].iter().zip(slots[row]..).take(page - offset);
            let run = run.take(RUN).take_while(|&(&slot, next)| slot == next);
            let run = run.count();
            // SAFETY: one task per head.
            let numbers = unsafe { self.pool.slice((index * num_kv_heads + group) * block, block) };
            let rows = &self.rows[row * self.width + self.op.column + group * c..];
            self.run(rows, numbers, offset..offset + run);
            row += run;
        }
    }

    /// Writes rows to consecutive slots of a page.
    fn run(&self, values: &[f32], page: &mut [N], slots: Range<usize>) {
        let PoolShape { c, page: size, .. } = self.shape;
        let (numbers, scales) = page.split_at_mut(c * size);
        let rows = || values.chunks(self.width).map(|row| &row[..c]);
        let mut inverses = [1.0; RUN];
        if N::SCALE > 0 {
            let scales = scales.chunks_exact_mut(N::SCALE).skip(slots.start);
            for ((inverse, scale), row) in
                inverses[..slots.len()].iter_mut().zip(scales).zip(rows())
            {
                *inverse = N::put_scale(row, scale);
            }
        }
        match self.op.pool {
            // Element by element: in a page, an element of adjacent slots is contiguous.
            Pool::Keys => {
                for (i, element) in numbers.chunks_exact_mut(size).enumerate() {
                    let values = values[i..].iter().step_by(self.width).zip(inverses);
                    let element = element[slots.clone()].iter_mut();
                    element.zip(values).for_each(|(n, (x, inverse))| *n = N::encode(*x, inverse));
                }
            }
            Pool::Values => {
                let slots = numbers.chunks_exact_mut(c).skip(slots.start).take(slots.len());
                for ((slot, row), inverse) in slots.zip(rows()).zip(&inverses) {
                    let numbers = slot.iter_mut().zip(row);
                    numbers.for_each(|(n, x)| *n = N::encode(*x, *inverse));
                }
            }
        }
    }
}

/// Copies complete pages of a pool, in order.
pub struct CopyPages<'a> {
    /// Source and destination page of each copy.
    pub copies: &'a [PageCopy],
}

impl InplaceOp1 for CopyPages<'_> {
    fn name(&self) -> &'static str {
        "copy-pages"
    }

    fn cpu_fwd(&self, pool: &mut CpuStorage, layout: &Layout) -> Result<()> {
        by_number!(pool, self.name(), self.copy(pool, layout))
    }
}

impl CopyPages<'_> {
    fn copy<N: KvNumber>(&self, pool: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (pages, a, b, c) = layout.shape().dims4()?;
        let len = a * b * c;
        let pool = numbers_mut::<N>(self.name(), pool, layout)?;
        for copy in self.copies {
            let (source, destination) = (copy.source.index(), copy.destination.index());
            if source.max(destination) >= pages {
                bail!("copy-pages: {source} to {destination} of {pages} pages");
            }
            let start = source * len;
            pool.copy_within(start..start + len, destination * len);
        }
        Ok(())
    }
}
