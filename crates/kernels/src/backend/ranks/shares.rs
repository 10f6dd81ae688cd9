//! The rows and columns of a weight that a rank holds.

use crate::backend::Numbers;
use crate::blocks::BlockRows;
use candle_core::{Result, bail};
use std::ops::Range;

/// A rank's share of consecutive parts, each of which is divided evenly.
pub(super) struct Share {
    /// Of each part one range, in order.
    ranges: Vec<Range<usize>>,
}

impl Share {
    /// The share of rank `rank` of `ranks` in `parts`, which add up to `count`.
    ///
    /// # Errors
    /// If they do not, or a part cannot be divided evenly. `what` names them.
    pub(super) fn new(
        what: &str,
        (rank, ranks): (usize, usize),
        (parts, count): (&[usize], usize),
    ) -> Result<Self> {
        if parts.iter().sum::<usize>() != count {
            bail!("{what}: expected parts of {count} together, found {parts:?}");
        }
        if let Some(odd) = parts.iter().find(|part| !part.is_multiple_of(ranks)) {
            bail!("{what}: expected a part that {ranks} ranks divide evenly, found {odd}");
        }
        let mut before = 0;
        let range = |part: &usize| {
            let (first, each) = (before, part / ranks);
            before += part;
            first + rank * each..first + (rank + 1) * each
        };
        Ok(Self {
            ranges: parts.iter().map(range).collect(),
        })
    }

    /// Its number of rows.
    pub(super) fn count(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    /// Its rows of `width` numbers; none if weights are only counted.
    pub(super) fn rows(&self, numbers: &[f32], width: usize) -> Result<Vec<f32>> {
        let mut own = Vec::new();
        if numbers.is_empty() {
            return Ok(own);
        }
        own.reserve(self.count() * width);
        for range in &self.ranges {
            let Some(rows) = numbers.get(range.start * width..range.end * width) else {
                bail!("{} numbers in rows of {width}", numbers.len());
            };
            own.extend_from_slice(rows);
        }
        Ok(own)
    }

    /// Its columns of rows of `width` numbers; none if weights are only counted.
    pub(super) fn columns(&self, numbers: &[f32], width: usize) -> Vec<f32> {
        let rows = numbers.chunks_exact(width.max(1));
        let ranges = |row| self.ranges.iter().map(move |range| (row, range));
        let parts = rows.flat_map(ranges);
        parts
            .flat_map(|(row, range)| row[range.clone()].iter().copied())
            .collect()
    }

    /// Its rows of blocks of `k` weights a row.
    pub(super) fn blocks<'a>(
        &self,
        blocks: &[BlockRows<'a>],
        k: usize,
    ) -> Result<Vec<BlockRows<'a>>> {
        let mut own = Vec::new();
        for range in &self.ranges {
            let mut first = 0;
            for of in blocks {
                let from = range.start.clamp(first, first + of.rows) - first;
                let to = range.end.clamp(first, first + of.rows) - first;
                first += of.rows;
                if from == to {
                    continue;
                }
                let length = of.kind.row_bytes(k).unwrap_or(0);
                let bytes = match of.bytes {
                    [] => Some(of.bytes),
                    all => all.get(from * length..to * length),
                };
                let Some(bytes) = bytes else {
                    bail!("{} bytes of {}", of.bytes.len(), of.kind.name());
                };
                own.push(BlockRows {
                    kind: of.kind,
                    rows: to - from,
                    bytes,
                });
            }
        }
        Ok(own)
    }
}

/// The numbers of a rank's rows of a matrix.
pub(super) enum Own<'a> {
    /// Row-major.
    Floats(Vec<f32>),
    /// Rows of blocks.
    Blocks(Vec<BlockRows<'a>>),
}

impl<'a> Own<'a> {
    /// The numbers of a share of a matrix with rows of `k`.
    pub(super) fn of(share: &Share, numbers: Numbers<'a>, k: usize) -> Result<Self> {
        Ok(match numbers {
            Numbers::Floats(numbers) => Self::Floats(share.rows(numbers, k)?),
            Numbers::Blocks(blocks) => Self::Blocks(share.blocks(blocks, k)?),
        })
    }

    pub(super) fn numbers(&self) -> Numbers<'_> {
        match self {
            Self::Floats(numbers) => Numbers::Floats(numbers),
            Self::Blocks(blocks) => Numbers::Blocks(blocks),
        }
    }
}
