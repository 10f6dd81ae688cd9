//! Writes into the physical KV pool, in place.

use crate::storage::{f32s, f32s_mut};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, bail};

/// Writes a part of every row of a tensor `[r, w]` to the row's slot of a pool `[s, g, c]`.
pub struct WriteRows<'a> {
    /// Physical slot of each row, `[r]`.
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
        let (slots, heads, head_width) = pool_layout.shape().dims3()?;
        let (count, width) = rows_layout.shape().dims2()?;
        let part = heads * head_width;
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
            let at = slot as usize;
            if at >= slots {
                bail!("write-rows: slot {slot} of {slots}");
            }
            pool[at * part..(at + 1) * part].copy_from_slice(&row[self.column..self.column + part]);
        }
        Ok(())
    }
}

/// Copies whole pages of a pool `[s, g, c]`, in order.
pub struct CopyPages<'a> {
    /// Source and destination page of each copy.
    pub pages: &'a [(u32, u32)],
    /// Slots of a page.
    pub page_size: usize,
}

impl InplaceOp1 for CopyPages<'_> {
    fn name(&self) -> &'static str {
        "copy-pages"
    }

    fn cpu_fwd(&self, pool: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (slots, heads, head_width) = layout.shape().dims3()?;
        let pages = slots / self.page_size.max(1);
        let len = self.page_size * heads * head_width;
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
