//! The rows of a backend whose arrays are tensors.

use crate::device::{BatchArrays, RowSet};
use candle_core::{Result, Tensor, bail};

/// Rows of f32 numbers, if they were written.
#[derive(Default)]
pub struct Rows(Option<Tensor>);

impl Rows {
    /// The rows.
    pub(super) fn get(&self) -> Result<&Tensor> {
        match &self.0 {
            Some(rows) => Ok(rows),
            None => bail!("an array is read before it is written"),
        }
    }

    /// Takes the rows away.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Overwrites the rows. Frees the old ones first, so that the new ones may take their memory.
    pub(super) fn write(&mut self, compute: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.0 = None;
        self.0 = Some(compute()?);
        Ok(())
    }

    /// The rows in a set.
    pub(super) fn chosen(&self, row_set: &RowSet, arrays: &BatchArrays<'_>) -> Result<Tensor> {
        let x = self.get()?;
        let (list, range) = match row_set {
            RowSet::First(rows) => return x.narrow(0, 0, *rows),
            RowSet::Scored(range) => (arrays.scored, range),
        };
        // Listed rows ascend, so a list of all rows names each in its place.
        if list.len() == x.dim(0)? {
            return x.narrow(0, range.start, range.len());
        }
        let ids = Tensor::from_slice(&list[range.clone()], range.len(), x.device())?;
        x.index_select(&ids, 0)
    }
}
