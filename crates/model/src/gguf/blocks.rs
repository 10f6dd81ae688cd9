//! Matrices whose blocks are kept as the file has them, or as others with exactly their weights.

use super::location::Location;
use super::types::{Read, TensorInfo};
use super::{Gguf, deinterleave, is_rotated};
use crate::LoadError;
use kernels::BlockType;
use std::borrow::Cow;
use std::collections::BTreeSet;

impl Gguf {
    /// The names of the types of blocks.
    pub(crate) fn block_types(&self) -> BTreeSet<&'static str> {
        let kinds = self.volumes.infos().map(|info| info.kind);
        kinds.filter(|kind| kind.kept().is_some()).map(|kind| kind.name).collect()
    }

    /// True if a tensor is stored in bf16.
    pub(crate) fn is_bf16(&self, name: &str) -> bool {
        let info = self.volumes.info(&Location::of(name).tensor);
        info.is_some_and(|info| info.kind.name == "BF16")
    }

    /// True if a tensor is stored in numbers of 16 bits (IEEE 754).
    pub(crate) fn is_f16(&self, name: &str) -> bool {
        let info = self.volumes.info(&Location::of(name).tensor);
        info.is_some_and(|info| info.kind.name == "F16")
    }

    /// The type of a matrix that can be kept in its blocks.
    pub(crate) fn kind(&self, name: &str) -> Option<BlockType> {
        kind_of(self.volumes.info(&Location::of(name).tensor)?)
    }

    /// The blocks of a matrix in row-major order, nothing unless `reads`, and the number of bytes
    /// that they take.
    ///
    /// # Errors
    /// If the tensor is missing, has another shape, is truncated, or has a scale that cannot be kept.
    pub(crate) fn blocks(
        &self,
        name: &str,
        shape: &[usize],
        kind: BlockType,
        reads: bool,
    ) -> Result<(Vec<u8>, usize), LoadError> {
        let (location, info) = self.find(name, shape)?;
        let length = location.range(info).1;
        if !reads {
            return Ok((Vec::new(), length));
        }
        let corrupt = |reason: String| LoadError::Corrupt {
            file: self.file.clone(),
            reason: format!("{name}: {reason}"),
        };
        let slice = self.data(name, &location, info)?;
        let slice: Result<Cow<'_, [u8]>, usize> = match info.kind.read {
            Read::As(_, convert) => convert(&slice).map(Cow::from),
            _ => Ok((&*slice).into()),
        };
        let slice = slice.and_then(|slice| kind.unfit(&slice).map_or(Ok(slice), Err));
        let slice = slice.map_err(|block| {
            let (kind, first) = (info.kind.name, block * kind.weights());
            corrupt(format!(
                "the {kind} block of the numbers from {first} on has a scale or number that is not finite, too \
                 large or too small"
            ))
        })?;
        let bytes = match self.interleaved.filter(|_| is_rotated(name)) {
            Some(head) => {
                let mut bytes = Vec::with_capacity(slice.len());
                let rows = shape.first().copied().unwrap_or(0);
                deinterleave(&slice, head, rows, &mut bytes);
                bytes
            }
            None => slice.into_owned(),
        };
        Ok((bytes, length))
    }
}

/// The block type of a matrix with whole blocks in every row, or of several such matrices.
fn kind_of(info: &TensorInfo) -> Option<BlockType> {
    let kind = info.kind.kept()?;
    let (&[_, columns] | &[_, _, columns]) = &info.dims[..] else {
        return None;
    };
    kind.row_bytes(columns).map(|_| kind)
}
