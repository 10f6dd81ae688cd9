//! Matrices whose blocks are kept as the file has them, those in Q3_K as Q6_K.

use super::location::Location;
use super::{Gguf, deinterleave, is_rotated, q3_k};
use crate::LoadError;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::TensorInfo;
use kernels::BlockType;
use std::borrow::Cow;
use std::collections::BTreeSet;

impl Gguf {
    /// True if matrices are stored in blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.volumes.infos().any(|info| kind_of(info).is_some() || expanded(info).is_some())
    }

    /// The types of blocks that are not kept: their matrices are expanded to numbers.
    pub(crate) fn expanded(&self) -> BTreeSet<&'static str> {
        self.volumes.infos().filter_map(expanded).collect()
    }

    /// True if a tensor is stored in bf16.
    pub(crate) fn is_bf16(&self, name: &str) -> bool {
        let info = self.volumes.info(&Location::of(name).tensor);
        info.is_some_and(|info| info.ggml_dtype == GgmlDType::BF16)
    }

    /// True if a tensor is stored in numbers of 16 bits (IEEE 754).
    pub(crate) fn is_f16(&self, name: &str) -> bool {
        let info = self.volumes.info(&Location::of(name).tensor);
        info.is_some_and(|info| info.ggml_dtype == GgmlDType::F16)
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
        let slice: Cow<'_, [u8]> = match info.ggml_dtype {
            GgmlDType::Q3K => q3_k::as_q6_k(&slice).into(),
            _ => (&*slice).into(),
        };
        if let Some(block) = kind.unfit(&slice) {
            let (kind, first) = (kind.name(), block * kind.weights());
            return Err(corrupt(format!(
                "the {kind} block of the numbers from {first} on has a scale or number that is not finite or \
                 too large"
            )));
        }
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

/// The type of blocks that are not kept.
fn expanded(info: &TensorInfo) -> Option<&'static str> {
    match info.ggml_dtype {
        GgmlDType::Q8_1 => Some("Q8_1"),
        GgmlDType::Q2K => Some("Q2_K"),
        GgmlDType::Q8K => Some("Q8_K"),
        _ => None,
    }
}

/// The block type of a matrix with whole blocks in every row, or of several such matrices.
fn kind_of(info: &TensorInfo) -> Option<BlockType> {
    let kind = match info.ggml_dtype {
        GgmlDType::Q4_0 => BlockType::Q4_0,
        GgmlDType::Q4_1 => BlockType::Q4_1,
        GgmlDType::Q5_0 => BlockType::Q5_0,
        GgmlDType::Q5_1 => BlockType::Q5_1,
        GgmlDType::Q8_0 => BlockType::Q8_0,
        GgmlDType::Q4K => BlockType::Q4_K,
        GgmlDType::Q5K => BlockType::Q5_K,
        GgmlDType::Q6K | GgmlDType::Q3K => BlockType::Q6_K,
        _ => return None,
    };
    let (&[_, columns] | &[_, _, columns]) = info.shape.dims() else {
        return None;
    };
    kind.row_bytes(columns).map(|_| kind)
}
