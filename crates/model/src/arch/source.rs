//! The numbers of matrices between reading and storing.

use super::load::Loader;
use crate::LoadError;
use crate::memory::floats;
use kernels::{BlockRows, BlockType, Epilogue, Storage, WeightDtype};

/// A stored matrix `[rows, k]`; the name is without `.weight`.
pub(super) struct Matrix {
    pub(super) name: String,
    pub(super) rows: usize,
    /// True if a `.bias [rows]` is stored with it.
    pub(super) bias: bool,
}

/// The numbers of a matrix while it is stored.
pub(super) enum SourceNumbers {
    /// Row-major.
    Floats(Vec<f32>),
    /// Rows of blocks.
    Blocks(Vec<Rows>),
}

/// Rows of one block type; no bytes if weights are only counted.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) kind: BlockType,
    pub(super) rows: usize,
    pub(super) bytes: Vec<u8>,
}

impl SourceNumbers {
    /// Keeps the first rows of a matrix with rows of `k` that was read from one tensor.
    pub(super) fn truncate(&mut self, rows: usize, k: usize) {
        match self {
            Self::Floats(numbers) => numbers.truncate(rows.saturating_mul(k)),
            Self::Blocks(all) => all.iter_mut().for_each(|blocks| {
                blocks.rows = blocks.rows.min(rows);
                let length = blocks.kind.row_bytes(k).unwrap_or(0);
                blocks.bytes.truncate(blocks.rows.saturating_mul(length));
            }),
        }
    }

    /// Appends the last tensor, of `rows` rows of `k`, once more.
    pub(super) fn repeat_last(&mut self, rows: usize, k: usize) {
        match self {
            Self::Floats(numbers) => {
                let first = numbers.len().saturating_sub(rows.saturating_mul(k));
                numbers.extend_from_within(first..);
            }
            Self::Blocks(all) => all.extend(all.last().cloned()),
        }
    }

    /// Bytes of a matrix `[rows, k]`, also if it is only counted.
    pub(super) fn bytes(&self, rows: usize, k: usize) -> usize {
        let length = |kind: BlockType| kind.row_bytes(k).unwrap_or(0);
        match self {
            Self::Floats(_) => floats(rows.saturating_mul(k)),
            Self::Blocks(all) => all.iter().fold(0, |sum: usize, blocks| {
                sum.saturating_add(blocks.rows.saturating_mul(length(blocks.kind)))
            }),
        }
    }

    pub(super) fn rows(&self) -> Vec<BlockRows<'_>> {
        let all: &[Rows] = match self {
            Self::Floats(_) => &[],
            Self::Blocks(all) => all,
        };
        let rows = all.iter().map(|blocks| BlockRows {
            kind: blocks.kind,
            rows: blocks.rows,
            bytes: &blocks.bytes,
        });
        rows.collect()
    }
}

impl<S: Storage> Loader<'_, S> {
    /// The dtype of matrices that are stored in one. Beside a publisher's codes that are kept, others are in bf16,
    /// unless their numbers have more bits in the file.
    pub(super) fn dtype_of(&self, matrices: &[Matrix]) -> WeightDtype {
        let weights = &self.weights;
        let has_short_numbers =
            |m: &Matrix| weights.has_short_numbers(&format!("{}.weight", m.name));
        let keeps = weights.dtype == WeightDtype::Blocks && !weights.is_gguf();
        match keeps && !weights.is_adapted() && matrices.iter().all(has_short_numbers) {
            true => WeightDtype::Bf16,
            false => weights.dtype,
        }
    }

    /// The block type that a matrix is stored in, `None` for numbers.
    pub(super) fn kind(
        &mut self,
        name: &str,
        shape: &[usize],
        is_linear: bool,
    ) -> Result<Option<BlockType>, LoadError> {
        let kind = self.weights.kind(name, shape, is_linear)?;
        Ok(kind.filter(|kind| self.storage.keeps(*kind)))
    }

    /// Reads matrices over the same input of width `k`: their blocks if all of them are kept so, and
    /// if a gate has the type of what it gates, otherwise their numbers.
    pub(super) fn source_numbers(
        &mut self,
        k: usize,
        matrices: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<SourceNumbers, LoadError> {
        let name = |m: &Matrix| format!("{}.weight", m.name);
        let kinds = matrices.iter().map(|m| self.kind(&name(m), &[m.rows, k], true));
        let kinds = kinds.collect::<Result<Option<Vec<BlockType>>, LoadError>>()?;
        let is_even = |kinds: &Vec<BlockType>| {
            epilogue == Epilogue::None || kinds.iter().all(|kind| *kind == kinds[0])
        };
        let weights = &mut *self.weights;
        if let Some(kinds) = kinds.filter(is_even) {
            let all = matrices.iter().zip(kinds).map(|(m, kind)| {
                let bytes = weights.blocks(&name(m), &[m.rows, k], kind)?;
                let rows = m.rows;
                Ok(Rows { kind, rows, bytes })
            });
            return Ok(SourceNumbers::Blocks(all.collect::<Result<_, LoadError>>()?));
        }
        // A configuration may state any sizes: room is made for tensors that are stored so.
        let is_stored = |m: &Matrix| weights.has(&name(m), &[m.rows, k]);
        let room = match weights.reads && matrices.iter().all(is_stored) {
            true => matrices.iter().map(|m| m.rows).sum::<usize>() * k,
            false => 0,
        };
        let mut numbers = Vec::with_capacity(room);
        for m in matrices {
            weights.append(&name(m), &[m.rows, k], &mut numbers)?;
        }
        Ok(SourceNumbers::Floats(numbers))
    }
}
