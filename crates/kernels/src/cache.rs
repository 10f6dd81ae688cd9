//! The physical KV pool and writes into it, in place.
//!
//! A pool of pages of `p` slots is `[pages, g, c, p]` for keys and `[pages, g, p, c]` for values:
//! what attention reads together lies together, a vector of slots for each number of a key and a
//! whole value for each slot.

use crate::parallel::{self, Shared};
use crate::storage::{f32s, f32s_mut};
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, bail};

/// Elements below which one thread writes them all.
const SERIAL_ELEMENTS: usize = 1 << 15;

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
        if count * part < SERIAL_ELEMENTS {
            (0..groups).for_each(|group| write.group(group));
        } else {
            parallel::for_each(groups, |group| write.group(group));
        }
        Ok(())
    }
}

/// The arguments of a write as slices. Tasks are key heads, whose parts of the pool are disjoint
/// whatever the slots are.
struct Write<'a> {
    op: &'a WriteRows<'a>,
    rows: &'a [f32],
    width: usize,
    sizes: [usize; 4],
    pool: Shared<f32>,
}

impl Write<'_> {
    /// Writes one head of all rows, in order.
    fn group(&self, group: usize) {
        let [_, groups, c, page] = self.sizes;
        let slots = self.op.slots;
        let mut row = 0;
        while row < slots.len() {
            let (at, place) = (slots[row] as usize / page, slots[row] as usize % page);
            // Rows whose slots follow one another in the page.
            let run = slots[row..].iter().zip(slots[row]..).take(page - place);
            let run = run.take_while(|&(&slot, next)| slot == next).count();
            // SAFETY: one task per head.
            let to = unsafe { self.pool.part((at * groups + group) * c * page, c * page) };
            let from = &self.rows[row * self.width + self.op.column + group * c..];
            match self.op.pool {
                // Number by number: a page has those of neighbouring slots side by side.
                Pool::Keys => {
                    for (i, to) in to.chunks_exact_mut(page).enumerate() {
                        let numbers = from[i..].iter().step_by(self.width);
                        let to = to[place..place + run].iter_mut();
                        to.zip(numbers).for_each(|(to, x)| *to = *x);
                    }
                }
                Pool::Values => {
                    let to = to[place * c..].chunks_exact_mut(c).take(run);
                    to.zip(from.chunks(self.width))
                        .for_each(|(to, from)| to.copy_from_slice(&from[..c]));
                }
            }
            row += run;
        }
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
