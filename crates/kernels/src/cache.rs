//! The physical KV pool and in-place writes to it.
//!
//! A pool of pages of `p` slots is `[pages, g, c, p]` for keys and `[pages, g, p, c]` for values.
//! Attention reads keys as vectors over slots, one per element of a key, and values as complete
//! vectors per slot; in both layouts this memory is contiguous.

use crate::parallel::{self, Shared};
use crate::storage::{f32s, f32s_mut};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, bail};

/// Number of elements below which a single thread writes all.
const SERIAL_ELEMENTS: usize = 1 << 15;

/// The kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// `[pages, g, c, p]`.
    Keys,
    /// `[pages, g, p, c]`.
    Values,
}

impl Pool {
    /// The shape of a pool's tensor.
    #[must_use]
    pub fn shape(self, pages: usize, groups: usize, c: usize, page: usize) -> [usize; 4] {
        match self {
            Self::Keys => [pages, groups, c, page],
            Self::Values => [pages, groups, page, c],
        }
    }

    /// Pages, heads, head width and slots per page of a tensor of this kind.
    pub(crate) fn sizes(self, layout: &Layout) -> Result<[usize; 4]> {
        let (pages, groups, rows, columns) = layout.shape().dims4()?;
        Ok(match self {
            Self::Keys => [pages, groups, rows, columns],
            Self::Values => [pages, groups, columns, rows],
        })
    }
}

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
        let [pages, groups, c, page] = self.pool.sizes(pool_layout)?;
        let (count, width) = rows_layout.shape().dims2()?;
        let columns = groups * c;
        let pool = f32s_mut(self.name(), pool, pool_layout)?;
        let rows = f32s(self.name(), rows, rows_layout)?;
        if self.slots.len() != count || self.column + columns > width {
            bail!(
                "write-rows: {} slots, {columns} columns from {} on for [{count}, {width}]",
                { self.slots.len() },
                self.column
            );
        }
        if let Some(slot) = self.slots.iter().find(|&&s| s as usize >= pages * page) {
            bail!("write-rows: slot {slot} of {}", pages * page);
        }
        let write = Write {
            op: self,
            rows,
            width,
            sizes: [pages, groups, c, page],
            pool: Shared::new(pool),
        };
        if count * columns < SERIAL_ELEMENTS {
            (0..groups).for_each(|group| write.group(group));
        } else {
            parallel::for_each(groups, |group| write.group(group));
        }
        Ok(())
    }
}

/// The arguments of a write as slices. Each task writes one key head; the memory of different heads
/// is disjoint for any slots.
struct Write<'a> {
    op: &'a WriteRows<'a>,
    rows: &'a [f32],
    width: usize,
    sizes: [usize; 4],
    pool: Shared<f32>,
}

impl Write<'_> {
    /// Writes one head of all rows in order.
    fn group(&self, group: usize) {
        let [_, groups, c, page] = self.sizes;
        let slots = self.op.slots;
        let mut row = 0;
        while row < slots.len() {
            let (at, offset) = (slots[row] as usize / page, slots[row] as usize % page);
            // Rows with consecutive slots in the page.
            let run = slots[row..].iter().zip(slots[row]..).take(page - offset);
            let run = run.take_while(|&(&slot, next)| slot == next).count();
            // SAFETY: one task per head.
            let to = unsafe { self.pool.part((at * groups + group) * c * page, c * page) };
            let from = &self.rows[row * self.width + self.op.column + group * c..];
            match self.op.pool {
                // Element by element: in a page, an element of adjacent slots is contiguous.
                Pool::Keys => {
                    for (i, to) in to.chunks_exact_mut(page).enumerate() {
                        let numbers = from[i..].iter().step_by(self.width);
                        let to = to[offset..offset + run].iter_mut();
                        to.zip(numbers).for_each(|(to, x)| *to = *x);
                    }
                }
                Pool::Values => {
                    let to = to[offset * c..].chunks_exact_mut(c).take(run);
                    to.zip(from.chunks(self.width))
                        .for_each(|(to, from)| to.copy_from_slice(&from[..c]));
                }
            }
            row += run;
        }
    }
}

/// Copies complete pages of a pool, in order.
pub struct CopyPages<'a> {
    /// Source and destination page of each copy.
    pub pages: &'a [(u32, u32)],
}

impl InplaceOp1 for CopyPages<'_> {
    fn name(&self) -> &'static str {
        "copy-pages"
    }

    fn cpu_fwd(&self, pool: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (pages, a, b, c) = layout.shape().dims4()?;
        let len = a * b * c;
        let pool = f32s_mut(self.name(), pool, layout)?;
        for &(from, to) in self.pages {
            if from.max(to) as usize >= pages {
                bail!("copy-pages: {from} to {to} of {pages} pages");
            }
            let from = from as usize * len;
            pool.copy_within(from..from + len, to as usize * len);
        }
        Ok(())
    }
}
