//! Weights divided among ranks.

use super::shares::{Own, Share};
use super::{EXPERTS, Ranks};
use crate::backend::{AngleSpec, Experts, Storage, Stored, StoredVector, Table};
use crate::routing::Routing;
use candle_core::{Result, bail};

/// A matrix on ranks.
pub enum RankMatrix<M> {
    /// On the first rank alone.
    First(M),
    /// Each rank has its rows.
    Divided {
        /// The matrix of each rank.
        each: Vec<M>,
        /// Whether the columns of all ranks, in rank order, are those of a single device: with several
        /// parts that no gate joins, each rank has some columns of every part.
        in_order: bool,
    },
}

impl<B> Ranks<B> {
    /// What `make` makes for every rank, which it gets with its number.
    fn every<T>(&self, make: impl Fn(&B, (usize, usize)) -> Result<T>) -> Result<Vec<T>> {
        let count = self.all.len();
        let each = self.all.iter().enumerate();
        each.map(|(rank, on)| make(on, (rank, count))).collect()
    }
}

impl<B: Storage> Storage for Ranks<B> {
    /// Each rank has its columns.
    type Table = Vec<B::Table>;
    type Vector = Vec<B::Vector>;
    type Matrix = RankMatrix<B::Matrix>;
    type Angles = Vec<B::Angles>;
    type Grouped = ();

    fn table(&self, table: Table) -> Result<Vec<B::Table>> {
        let Table {
            rows,
            width,
            numbers,
        } = table;
        self.every(|on, rank| {
            let share = Share::new("embedding table", rank, (&[width], width))?;
            on.table(Table {
                rows,
                width: share.count(),
                numbers: share.columns(&numbers, width),
            })
        })
    }

    fn vector(&self, vector: StoredVector<'_>) -> Result<Vec<B::Vector>> {
        self.every(|on, rank| {
            if vector.parts.is_empty() {
                return on.vector(vector);
            }
            let share = Share::new("vector", rank, (vector.parts, vector.count))?;
            on.vector(StoredVector {
                count: share.count(),
                numbers: &share.rows(vector.numbers, 1)?,
                parts: &[],
            })
        })
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<RankMatrix<B::Matrix>> {
        if matrix.parts.is_empty() {
            return Ok(RankMatrix::First(self.all[0].matrix(matrix)?));
        }
        let (rows, k) = matrix.shape;
        let each = self.every(|on, rank| {
            let share = Share::new("matrix", rank, (matrix.parts, rows))?;
            let own = Own::of(&share, matrix.numbers, k)?;
            let bias = matrix.bias.map(|bias| share.rows(bias, 1)).transpose()?;
            on.matrix(Stored {
                shape: (share.count(), k),
                numbers: own.numbers(),
                bias: bias.as_deref(),
                parts: &[],
                ..matrix
            })
        });
        let joined = if matrix.epilogue.is_gated() { 2 } else { 1 };
        Ok(RankMatrix::Divided {
            each: each?,
            in_order: self.all.len() == 1 || matrix.parts.len() == joined,
        })
    }

    fn angles(&self, spec: AngleSpec) -> Result<Vec<B::Angles>> {
        self.every(|on, _| on.angles(spec.clone()))
    }

    fn experts(
        &self,
        _: Self::Matrix,
        _: Vec<[Self::Matrix; 2]>,
        _: Routing<'_>,
    ) -> Result<Experts<Self>> {
        bail!("{EXPERTS}")
    }

    fn bytes(&self) -> u64 {
        self.all.iter().map(Storage::bytes).sum()
    }

    fn ranks(&self) -> usize {
        self.all.len()
    }
}
