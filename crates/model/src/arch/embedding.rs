//! Loads the embedding table.

use super::load::{Loader, failed};
use crate::LoadError;
use crate::memory::floats;
use crate::weights::each_row;
use half::{bf16, f16};
use kernels::{BlockType, Storage, Table, TableNumbers};

/// Numbers in f32 of a line of the processor's cache.
const LINE: usize = 16;

/// An embedding table as its file has it.
pub(super) struct SourceTable {
    /// Row-major in f32; empty if only its blocks are wanted, or weights are only counted.
    pub(super) numbers: Vec<f32>,
    /// The factor of the table's numbers.
    pub(super) factor: f32,
    blocks: Option<(BlockType, Vec<u8>)>,
    /// True if the numbers are read in f32.
    is_widened: bool,
}

impl SourceTable {
    /// True if the file has the numbers in blocks.
    pub(super) fn is_in_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// The numbers of the first `rows` rows of `d`, times the factor, as rows of columns.
    pub(super) fn transposed(&self, rows: usize, d: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.numbers.len().min(rows.saturating_mul(d))];
        each_row(&mut out, LINE * rows, |line, columns| {
            for (row, numbers) in self.numbers.chunks_exact(d.max(1)).take(rows).enumerate() {
                let numbers = &numbers[LINE * line..];
                for (column, x) in columns.chunks_exact_mut(rows).zip(numbers) {
                    column[row] = *x * self.factor;
                }
            }
        });
        out
    }

    /// Bytes of its numbers in f32 and of its blocks, of `rows` rows of `d`.
    pub(super) fn bytes(&self, rows: usize, d: usize) -> usize {
        let numbers = if self.is_widened { floats(rows.saturating_mul(d)) } else { 0 };
        let blocks = self.blocks.as_ref().and_then(|(kind, _)| kind.row_bytes(d));
        numbers.saturating_add(blocks.unwrap_or(0).saturating_mul(rows))
    }
}

impl<S: Storage> Loader<'_, S> {
    /// Reads the table. A canvas model's is multiplied by the root of the width.
    pub(super) fn embedding(&mut self, is_canvas: bool) -> Result<SourceTable, LoadError> {
        let (rows, d) = (self.spec.info.vocabulary.embedding_size, self.spec.info.width);
        let (name, shape) = (format!("{}.weight", self.names.embedding), [rows, d]);
        let factor = if is_canvas { (d as f32).sqrt() } else { 1.0 };
        // An adapter may change the table.
        let kind = self.kind(&name, &shape, false)?.filter(|_| !self.weights.is_adapted());
        if let (Some(kind), false) = (kind, is_canvas) {
            let bytes = self.weights.blocks(&name, &shape, kind)?;
            let (numbers, blocks) = (Vec::new(), Some((kind, bytes)));
            return Ok(SourceTable { numbers, factor, blocks, is_widened: false });
        }
        let numbers = self.weights.tensor(&name, &shape)?;
        let blocks = match kind {
            Some(kind) => Some((kind, self.weights.blocks_again(&name, &shape, kind)?)),
            None => None,
        };
        Ok(SourceTable { numbers, factor, blocks, is_widened: true })
    }

    /// Stores the table in the number format of its file, where rows are widened exactly.
    pub(super) fn table(&mut self, source: SourceTable) -> Result<S::Table, LoadError> {
        let (rows, width) = (self.spec.info.vocabulary.embedding_size, self.spec.info.width);
        let freed = if source.is_widened { floats(rows.saturating_mul(width)) } else { 0 };
        let SourceTable { mut numbers, factor, blocks, .. } = source;
        let name = format!("{}.weight", self.names.embedding);
        let halves = BlockType::F16;
        let keeps_halves = || self.storage.keeps(halves) && halves.row_bytes(width).is_some();
        let is_adapted = self.weights.is_adapted();
        let numbers = match blocks {
            Some((kind, bytes)) => TableNumbers::Blocks(kind, bytes),
            None if self.weights.is_bf16(&name) && !is_adapted => {
                TableNumbers::Halves(numbers.into_iter().map(upper).collect())
            }
            None if self.weights.is_f16(&name) && !is_adapted && keeps_halves() => {
                let bytes = numbers.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes());
                TableNumbers::Blocks(halves, bytes.collect())
            }
            None => {
                self.adapt_mask(&mut numbers)?;
                TableNumbers::Floats(numbers)
            }
        };
        let table = Table { rows, width, numbers, factor };
        let stored = self.storage.table(table).map_err(failed)?;
        self.count(freed);
        Ok(stored)
    }
}

/// A number of bf16 that was widened.
fn upper(x: f32) -> bf16 {
    bf16::from_bits((x.to_bits() >> 16) as u16)
}
