//! Loads single weights of a transformer.

use super::load::Loader;
use crate::LoadError;
use crate::memory::floats;
use kernels::{Epilogue, Storage, Stored};

/// A stored matrix `[rows, k]`; the name is without `.weight`.
pub(super) struct Matrix {
    pub(super) name: String,
    pub(super) rows: usize,
    /// Whether a `.bias [rows]` is stored with it.
    pub(super) bias: bool,
}

impl<S: Storage> Loader<'_, S> {
    /// The LM head in the embedding table. Rows beyond the vocabulary are padding and have no logit.
    pub(super) fn tied_head(&mut self, table: &[f32]) -> Result<S::Matrix, LoadError> {
        let info = &self.spec.info;
        // Only counted weights have no numbers.
        let kept = table.len().min(info.vocab_size.saturating_mul(info.width));
        let matrix = Stored {
            shape: (info.vocab_size, info.width),
            numbers: &table[..kept],
            bias: None,
            dtype: self.weights.dtype,
            epilogue: Epilogue::None,
        };
        self.stored(matrix, info.embedding_size)
    }

    /// The LM head of its own. Rows beyond the vocabulary are padding and have no logit.
    pub(super) fn own_head(&mut self) -> Result<S::Matrix, LoadError> {
        let info = &self.spec.info;
        let (rows, d, vocab) = (info.embedding_size, info.width, info.vocab_size);
        let name = self.names.head;
        let mut weight = self.weights.tensor(&format!("{name}.weight"), &[rows, d])?;
        weight.truncate(vocab.saturating_mul(d));
        let bias = match self.spec.bias {
            true => {
                let mut bias = self.weights.tensor(&format!("{name}.bias"), &[rows])?;
                bias.truncate(vocab);
                Some(bias)
            }
            false => None,
        };
        let matrix = Stored {
            shape: (vocab, d),
            numbers: &weight,
            bias: bias.as_deref(),
            dtype: self.weights.dtype,
            epilogue: Epilogue::None,
        };
        self.stored(matrix, rows)
    }

    /// Several matrices over the same input of width `k` as one, stacked in order.
    pub(super) fn fused(
        &mut self,
        k: usize,
        matrices: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<S::Matrix, LoadError> {
        let rows = matrices.iter().map(|m| m.rows).sum::<usize>();
        let biased = matrices.iter().any(|m| m.bias);
        // A configuration may state any sizes: room is made for tensors that are stored so.
        let weights = &mut *self.weights;
        let is_stored = |m: &Matrix| weights.has(&format!("{}.weight", m.name), &[m.rows, k]);
        let room = match weights.reads && matrices.iter().all(is_stored) {
            true => rows * k,
            false => 0,
        };
        let (mut weight, mut bias) = (Vec::with_capacity(room), Vec::new());
        for m in matrices {
            weights.append(&format!("{}.weight", m.name), &[m.rows, k], &mut weight)?;
            if m.bias {
                bias.append(&mut weights.tensor(&format!("{}.bias", m.name), &[m.rows])?);
            } else if biased && weights.reads {
                bias.resize(bias.len() + m.rows, 0.0);
            }
        }
        let matrix = Stored {
            shape: (rows, k),
            numbers: &weight,
            bias: biased.then_some(&bias),
            dtype: weights.dtype,
            epilogue,
        };
        self.stored(matrix, rows)
    }

    /// Stores a matrix while `read` rows of f32 are in memory.
    pub(super) fn stored(
        &mut self,
        matrix: Stored<'_>,
        read: usize,
    ) -> Result<S::Matrix, LoadError> {
        let width = matrix.shape.1;
        let stored = self.storage.matrix(matrix);
        self.count(floats(read.saturating_mul(width)));
        stored.map_err(failed)
    }

    /// The norm weights `{name}.weight [d]`.
    pub(super) fn norm(&mut self, name: String) -> Result<S::Vector, LoadError> {
        let d = self.spec.info.width;
        let numbers = self.weights.tensor(&format!("{name}.weight"), &[d])?;
        self.vector(d, &numbers)
    }

    pub(super) fn vector(&mut self, count: usize, numbers: &[f32]) -> Result<S::Vector, LoadError> {
        let vector = self.storage.vector(count, numbers);
        self.count(0);
        vector.map_err(failed)
    }

    /// Counts the stored bytes, and `besides` bytes that are freed during loading.
    pub(super) fn count(&mut self, besides: usize) {
        self.weights.memory.hold(self.storage.bytes(), besides);
    }
}

pub(super) fn failed(error: candle_core::Error) -> LoadError {
    LoadError::Setup(error.to_string())
}
