//! Rows whose columns are divided among ranks, or held whole by each.

use super::Ranks;
use crate::backend::{ArrayKind, Backend, Rank};
use candle_core::{Result, bail};

/// Where the numbers of an array are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    /// Nowhere: it was not written.
    #[default]
    Nothing,
    /// All columns on the first rank.
    First,
    /// All columns on every rank.
    Whole,
    /// Each rank has its columns.
    Own,
    /// Each rank has its columns, and all of them.
    Both,
}

/// An array on ranks. A rank's memory is allocated when it is first written.
pub struct RankArray<A> {
    pub(super) kind: ArrayKind,
    rows: usize,
    pub(super) width: usize,
    /// The columns of each rank.
    own: Vec<A>,
    /// All columns, on the first rank or on every one.
    whole: Vec<A>,
    held: Held,
}

impl<A> RankArray<A> {
    /// An array that was not written.
    pub(super) fn new(kind: ArrayKind, rows: usize, width: usize) -> Self {
        Self {
            kind,
            rows,
            width,
            own: Vec::new(),
            whole: Vec::new(),
            held: Held::Nothing,
        }
    }

    /// The columns of each rank.
    pub(super) fn own(&self) -> Result<&[A]> {
        match self.held {
            Held::Own | Held::Both => Ok(&self.own),
            held => bail!("expected an array divided among ranks, found {held:?}"),
        }
    }

    /// The same, mutable: what every rank holds of all columns is outdated afterwards.
    pub(super) fn own_mut(&mut self) -> Result<&mut [A]> {
        self.own()?;
        self.held = Held::Own;
        Ok(&mut self.own)
    }

    /// All columns on every rank.
    pub(super) fn whole(&self) -> Result<&[A]> {
        match self.held {
            Held::Whole | Held::Both => Ok(&self.whole),
            held => bail!("expected an array that every rank holds, found {held:?}"),
        }
    }

    /// All columns on the first rank, if they are there.
    pub(super) fn first(&self) -> Option<&A> {
        match self.held {
            Held::First | Held::Whole | Held::Both => self.whole.first(),
            Held::Nothing | Held::Own => None,
        }
    }

    /// Forgets the numbers.
    pub(super) fn clear(&mut self) {
        self.held = Held::Nothing;
    }

    /// The columns of each rank, to be overwritten.
    pub(super) fn new_own<B: Backend<Array = A>>(&mut self, ranks: &[B]) -> Result<&mut [A]> {
        if !self.width.is_multiple_of(ranks.len()) {
            bail!(
                "expected rows that {} ranks divide evenly, found {}",
                ranks.len(),
                self.width
            );
        }
        let width = self.width / ranks.len();
        allocate(&mut self.own, ranks, (self.kind, self.rows, width))?;
        self.held = Held::Own;
        Ok(&mut self.own)
    }

    /// All columns on every rank, to be overwritten.
    pub(super) fn new_whole<B: Backend<Array = A>>(&mut self, ranks: &[B]) -> Result<&mut [A]> {
        allocate(&mut self.whole, ranks, (self.kind, self.rows, self.width))?;
        self.held = Held::Whole;
        Ok(&mut self.whole)
    }

    /// All columns on the first rank, to be overwritten.
    pub(super) fn new_first<B: Backend<Array = A>>(&mut self, ranks: &[B]) -> Result<&mut A> {
        let first = &ranks[..1];
        allocate(&mut self.whole, first, (self.kind, self.rows, self.width))?;
        self.held = Held::First;
        Ok(&mut self.whole[0])
    }
}

/// Allocates the arrays that are not there.
fn allocate<B: Backend>(
    arrays: &mut Vec<B::Array>,
    ranks: &[B],
    (kind, rows, width): (ArrayKind, usize, usize),
) -> Result<()> {
    for on in ranks.iter().skip(arrays.len()) {
        arrays.push(on.array(kind, rows, width)?);
    }
    Ok(())
}

impl<B: Rank> Ranks<B> {
    /// Gives every rank all columns of the first rows of an array, of which each has its own.
    pub(super) fn gather(&self, x: &mut RankArray<B::Array>, rows: usize) -> Result<()> {
        let ranks = &self.all;
        x.own()?;
        allocate(&mut x.whole, ranks, (x.kind, x.rows, x.width))?;
        B::gather(ranks, (&x.own, rows), (&mut x.whole, x.width))?;
        x.held = Held::Both;
        self.exchange
            .add(x.kind, rows * (x.width - x.width / ranks.len()));
        Ok(())
    }
}
