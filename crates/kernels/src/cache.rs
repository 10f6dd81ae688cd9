//! The physical KV pool and writes into it, in place.
//!
//! A pool of pages of `p` slots is `[pages, g, c, p]` for keys and `[pages, g, p, c]` for values:
//! what attention reads together lies together, a vector of slots for each number of a key and a
//! whole value for each slot.

use crate::storage::{f32s, f32s_mut};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, bail};

/// Which of the two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// `[pages, g, c, p]`.
    Keys,
    /// `[pages, g, p, c]`.
    Values,
}

impl Pool {
    /// Its shape.
    #[must_use]
    pub fn shape(self, pages: usize, groups: usize, c: usize, page: usize) -> [usize; 4] {
        match self {
            Self::Keys => [pages, groups, c, page],
            Self::Values => [pages, groups, page, c],
        }
    }

    /// Pages, heads, head width and slots of a page of a tensor of this pool.
    pub(crate) fn sizes(self, layout: &Layout) -> Result<[usize; 4]> {
        let (pages, groups, rows, columns) = layout.shape().dims4()?;
        Ok(match self {
            Self::Keys => [pages, groups, rows, columns],
            Self::Values => [pages, groups, columns, rows],
        })
    }
}

/// Writes a part of every row of a tensor `[r, w]` to the row's slot of a pool.
pub struct WriteRows<'a> {
    /// Which pool it is.
    pub pool: Pool,
    /// Physical slot of each row, `[r]`: page times slots of a page, plus the place in it.
    pub slots: &'a [u32],
    /// First column of the part, which is `g * c` wide.
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
        let part = groups * c;
        let pool = f32s_mut(self.name(), pool, pool_layout)?;
        let rows = f32s(self.name(), rows, rows_layout)?;
        if self.slots.len() != count || self.column + part > width {
            bail!(
                "write-rows: {} slots, {part} columns from {} on for [{count}, {width}]",
                { self.slots.len() },
                self.column
            );
        }
        for (row, &slot) in rows.chunks_exact(width).zip(self.slots) {
            let (at, place) = (slot as usize / page, slot as usize % page);
            if at >= pages {
                bail!("write-rows: slot {slot} of {}", pages * page);
            }
            let to = &mut pool[at * part * page..(at + 1) * part * page];
            let heads = row[self.column..self.column + part].chunks_exact(c);
            for (to, head) in to.chunks_exact_mut(c * page).zip(heads) {
                match self.pool {
                    Pool::Keys => {
                        let numbers = to[place..].iter_mut().step_by(page);
                        numbers.zip(head).for_each(|(to, x)| *to = *x);
                    }
                    Pool::Values => to[place * c..(place + 1) * c].copy_from_slice(head),
                }
            }
        }
        Ok(())
    }
}

/// Copies whole pages of a pool, in order.
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
