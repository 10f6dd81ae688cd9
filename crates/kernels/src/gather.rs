//! Adds rows of one tensor to selected rows of another, in place.

use crate::parallel::{self, Shared};
use crate::storage::{numbers, numbers_mut};
use candle_core::{CpuStorage, InplaceOp2, Layout, Result, bail};

/// Number of elements below which a single thread adds all.
const SERIAL_ELEMENTS: usize = 1 << 15;

/// Adds row i of a tensor `[n, d]`, multiplied by `weights[i]`, to row `rows[i]` of a tensor
/// `[r, d]`.
pub struct AddRows<'a> {
    /// Destination of each row, `[n]`, strictly ascending.
    pub rows: &'a [u32],
    /// Weight of each row, `[n]`.
    pub weights: &'a [f32],
}

impl InplaceOp2 for AddRows<'_> {
    fn name(&self) -> &'static str {
        "add-rows"
    }

    fn cpu_fwd(
        &self,
        sums: &mut CpuStorage,
        to_layout: &Layout,
        added: &CpuStorage,
        from_layout: &Layout,
    ) -> Result<()> {
        let (rows, d) = to_layout.shape().dims2()?;
        let shape = from_layout.shape().dims2()?;
        let count = self.rows.len();
        if shape != (count, d) || self.weights.len() != count {
            bail!("add-rows: {count} rows, {} weights for {shape:?} into [{rows}, {d}]", {
                self.weights.len()
            });
        }
        if !self.rows.is_sorted_by(|a, b| a < b) {
            bail!("add-rows: rows are not strictly ascending");
        }
        if let Some(row) = self.rows.last().filter(|&&row| row as usize >= rows) {
            bail!("add-rows: row {row} of {rows}");
        }
        let sums = numbers_mut::<f32>(self.name(), sums, to_layout)?;
        let added = numbers::<f32>(self.name(), added, from_layout)?;
        let shared = Shared::new(sums);
        let add = |i: usize| {
            // SAFETY: rows differ, so no two parts overlap.
            let sum_row = unsafe { shared.slice(self.rows[i] as usize * d, d) };
            let row = &added[i * d..(i + 1) * d];
            let weight = self.weights[i];
            sum_row.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        };
        if count * d < SERIAL_ELEMENTS {
            (0..count).for_each(add);
        } else {
            parallel::for_each(count, add);
        }
        Ok(())
    }
}
