//! Loads single weights of a transformer.

use super::block::GatedInput;
use super::load::{Loader, failed};
use super::source::{Matrix, SourceNumbers};
use crate::LoadError;
use crate::weights::Module;
use kernels::{Epilogue, Numbers, Storage, Stored, StoredVector, WeightDtype};

/// Matrices over the same input of width `k`, stacked in order.
pub(super) struct Stack<'a> {
    pub(super) k: usize,
    pub(super) matrices: &'a [Matrix],
    pub(super) epilogue: Epilogue,
}

impl<S: Storage> Loader<'_, S> {
    /// Several matrices over the same input of width `k` as one, stacked in order.
    pub(super) fn fused(
        &mut self,
        k: usize,
        matrices: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<S::Matrix, LoadError> {
        Ok(self.adapted(Stack { k, matrices, epilogue }, &[])?.0)
    }

    /// Stacked matrices as one, with the columns of the gated adapter that has factors of the modules.
    pub(super) fn adapted(
        &mut self,
        Stack { k, matrices, epilogue }: Stack<'_>,
        modules: &[Module],
    ) -> Result<(S::Matrix, Option<GatedInput<S>>), LoadError> {
        let rows = matrices.iter().map(|m| m.rows).sum::<usize>();
        let biased = matrices.iter().any(|m| m.bias);
        let source = self.source_numbers(k, matrices, epilogue)?;
        let mut bias = Vec::new();
        for m in matrices {
            if m.bias {
                let name = format!("{}.bias", m.name);
                bias.append(&mut self.weights.tensor(&name, &[m.rows])?);
            } else if biased && self.weights.reads {
                bias.resize(bias.len() + m.rows, 0.0);
            }
        }
        let name = matrices.first().map_or("", |m| &m.name);
        let extra_bytes = source.bytes(rows, k);
        let bias = biased.then_some(&*bias);
        let matrix = Stored {
            shape: [rows, k],
            numbers: Numbers::Floats(&[]),
            bias,
            dtype: self.dtype_of(matrices),
            epilogue,
        };
        match self.weights.gated_factors(modules, k)? {
            None => Ok((self.whole(name, &source, matrix, extra_bytes)?, None)),
            Some(factors) => self.widened(name, &source, matrix, &factors),
        }
    }

    /// Stores numbers that were read as the matrix, while `extra_bytes` further bytes are in memory.
    pub(super) fn whole(
        &mut self,
        name: &str,
        source: &SourceNumbers,
        matrix: Stored<'_>,
        extra_bytes: usize,
    ) -> Result<S::Matrix, LoadError> {
        let blocks = source.rows();
        let numbers = match source {
            SourceNumbers::Floats(numbers) => Numbers::Floats(numbers),
            SourceNumbers::Blocks(_) => Numbers::Blocks(&blocks),
        };
        self.stored(name, Stored { numbers, ..matrix }, extra_bytes)
    }

    /// Stores a matrix while `extra_bytes` further bytes are in memory.
    pub(super) fn stored(
        &mut self,
        name: &str,
        matrix: Stored<'_>,
        extra_bytes: usize,
    ) -> Result<S::Matrix, LoadError> {
        let (dtype, k) = (matrix.dtype, matrix.shape[1]);
        if !k.is_multiple_of(dtype.group()) {
            return Err(LoadError::Group {
                tensor: name.to_owned(),
                group: dtype.group(),
                dtype: dtype.name(),
                found: k,
            });
        }
        let stored = self.storage.matrix(matrix);
        self.count(extra_bytes);
        stored.map_err(|error| match dtype {
            // The weights themselves may not fit.
            WeightDtype::Int4 => LoadError::Setup(format!("{name}: {error}")),
            _ => failed(error),
        })
    }

    /// The norm weights `{name}.weight [d]`.
    pub(super) fn norm(&mut self, name: String) -> Result<S::Vector, LoadError> {
        let d = self.spec.info.width;
        let numbers = self.weights.tensor(&format!("{name}.weight"), &[d])?;
        self.vector(StoredVector { count: d, numbers: &numbers })
    }

    pub(super) fn vector(&mut self, vector: StoredVector<'_>) -> Result<S::Vector, LoadError> {
        let vector = self.storage.vector(vector);
        self.count(0);
        vector.map_err(failed)
    }

    /// Counts the stored bytes, and `extra_bytes` further bytes that are freed during loading.
    pub(super) fn count(&mut self, extra_bytes: usize) {
        self.weights.memory.hold(self.storage.bytes(), extra_bytes);
    }
}
