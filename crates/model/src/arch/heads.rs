//! Loads the LM head.

use super::embedding::SourceTable;
use super::load::Loader;
use super::source::Matrix;
use super::source::{Rows, SourceNumbers};
use crate::LoadError;
use kernels::{Epilogue, Numbers, Storage, Stored};

impl<S: Storage> Loader<'_, S> {
    /// The LM head in the embedding table. Rows beyond the vocabulary are padding and have no logit.
    pub(super) fn tied_head(&mut self, table: &SourceTable) -> Result<S::Matrix, LoadError> {
        let info = &self.spec.info;
        let (rows, d, vocab) = (info.vocabulary.embedding_size, info.width, info.vocabulary.size);
        let name = format!("{}.weight", self.names.embedding);
        // Only counted weights have no numbers.
        let kept = table.numbers.len().min(vocab.saturating_mul(d));
        let mut blocks = match self.kind(&name, &[rows, d], false)? {
            Some(kind) => {
                let bytes = self.weights.blocks_again(&name, &[rows, d], kind)?;
                SourceNumbers::Blocks(vec![Rows { kind, rows, bytes }])
            }
            None => SourceNumbers::Floats(Vec::new()),
        };
        blocks.truncate(vocab, d);
        let blocks_of = blocks.rows();
        let (numbers, more) = match blocks_of.is_empty() {
            true => (Numbers::Floats(&table.numbers[..kept]), 0),
            false => (Numbers::Blocks(&blocks_of), blocks.bytes(rows, d)),
        };
        let extra_bytes = table.bytes(rows, d).saturating_add(more);
        let matrix = Stored {
            shape: [vocab, d],
            numbers,
            bias: None,
            dtype: self.dtype_of(&[Matrix {
                name: self.names.embedding.to_owned(),
                rows,
                bias: false,
            }]),
            epilogue: Epilogue::None,
        };
        self.stored(&name, matrix, extra_bytes)
    }

    /// The LM head of its own. Rows beyond the vocabulary are padding and have no logit.
    pub(super) fn own_head(&mut self) -> Result<S::Matrix, LoadError> {
        let info = &self.spec.info;
        let (rows, d, vocab) = (info.vocabulary.embedding_size, info.width, info.vocabulary.size);
        let head = Matrix { name: self.names.head.to_owned(), rows, bias: false };
        let mut source = self.source_numbers(d, std::slice::from_ref(&head), Epilogue::None)?;
        let extra_bytes = source.bytes(rows, d);
        source.truncate(vocab, d);
        let bias = match self.spec.bias {
            true => {
                let mut bias = self.weights.tensor(&format!("{}.bias", head.name), &[rows])?;
                bias.truncate(vocab);
                Some(bias)
            }
            false => None,
        };
        let matrix = Stored {
            shape: [vocab, d],
            numbers: Numbers::Floats(&[]),
            bias: bias.as_deref(),
            dtype: self.dtype_of(std::slice::from_ref(&head)),
            epilogue: Epilogue::None,
        };
        self.whole(&head.name, &source, matrix, extra_bytes)
    }
}
