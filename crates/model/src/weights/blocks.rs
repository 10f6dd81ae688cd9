//! Matrices that are kept in blocks: those of a GGUF file, a publisher's integers, or numbers of 16 bits.

use kernels::{BlockType, WeightDtype};
use safetensors::tensor::Dtype;

use super::{Source, Weights};
use crate::LoadError;

impl Weights {
    /// The blocks of a matrix in row-major order, empty if tensors are not read.
    pub(crate) fn blocks(
        &mut self,
        name: &str,
        shape: &[usize],
        kind: BlockType,
    ) -> Result<Vec<u8>, LoadError> {
        self.request(name)?;
        let (bytes, transient, read) = self.peek(name, shape, kind)?;
        self.received(shape, transient, read);
        Ok(bytes)
    }

    /// As [`Self::blocks`], of a tensor that was requested before.
    pub(crate) fn blocks_again(
        &self,
        name: &str,
        shape: &[usize],
        kind: BlockType,
    ) -> Result<Vec<u8>, LoadError> {
        Ok(self.peek(name, shape, kind)?.0)
    }

    /// The blocks of a matrix, the bytes of memory that reading takes, and those of the file.
    fn peek(
        &self,
        name: &str,
        shape: &[usize],
        kind: BlockType,
    ) -> Result<(Vec<u8>, usize, usize), LoadError> {
        match &self.source {
            Source::Gguf(file) => {
                let (blocks, read) = file.blocks(name, shape, kind, self.reads)?;
                Ok((blocks, kept_bytes(shape, kind), read))
            }
            Source::Shards { shards, .. } if kind == BlockType::F16 => {
                let tensor = shards.find(name, shape)?;
                let size = tensor.bytes.len();
                let blocks = if self.reads { tensor.slice()?.to_vec() } else { Vec::new() };
                if kind.unfit(&blocks).is_some() {
                    // The error of reading names the number.
                    tensor.read(name, &mut Vec::new())?;
                }
                Ok((blocks, size, size))
            }
            Source::Shards { shards, quantization: Some(quantization) } => {
                let matrix = quantization.find(shards, name, shape, true)?.ok_or_else(|| {
                    LoadError::Setup(format!("{name}: expected a quantized matrix"))
                })?;
                let blocks = if self.reads { matrix.blocks(name, kind)? } else { Vec::new() };
                let transient = kept_bytes(shape, kind).saturating_add(matrix.extra_bytes());
                Ok((blocks, transient, matrix.stored_bytes()))
            }
            Source::Random { .. } if !self.reads => Ok((Vec::new(), kept_bytes(shape, kind), 0)),
            _ => Err(LoadError::Setup(format!("{name}: expected a quantized file"))),
        }
    }

    /// The type of a matrix `[n, k]` that is kept in blocks: those of its file, of its publisher's codes, or of
    /// numbers of 16 bits, which have the products of f32.
    ///
    /// # Errors
    /// Quantized tensors that are not as the configuration says.
    pub(crate) fn kind(
        &mut self,
        name: &str,
        shape: &[usize],
        is_linear: bool,
    ) -> Result<Option<BlockType>, LoadError> {
        Ok(self.coded(name, shape, is_linear)?.or_else(|| self.halves(name, shape)))
    }

    /// [`BlockType::F16`] if a matrix that is multiplied in f32 is stored so.
    fn halves(&self, name: &str, shape: &[usize]) -> Option<BlockType> {
        let is_f32 = matches!(self.dtype, WeightDtype::F32 | WeightDtype::Blocks);
        let kind = BlockType::F16;
        let is_whole = kind.row_bytes(*shape.last()?).is_some();
        (self.is_f16(name) && is_f32 && is_whole && self.lora.is_none()).then_some(kind)
    }

    /// True if a tensor has F16 in its file.
    pub(crate) fn is_f16(&self, name: &str) -> bool {
        match &self.source {
            Source::Gguf(file) => file.is_f16(name),
            Source::Shards { shards, .. } => shards.dtype(name) == Some(Dtype::F16),
            Source::Random { stored, .. } => !self.reads && *stored == Dtype::F16,
        }
    }

    /// The type of a matrix that is kept in its file's blocks or in its publisher's codes.
    fn coded(
        &mut self,
        name: &str,
        shape: &[usize],
        is_linear: bool,
    ) -> Result<Option<BlockType>, LoadError> {
        match &self.source {
            Source::Gguf(file) if self.dtype == WeightDtype::Blocks => Ok(file.kind(name)),
            // An adapter changes numbers, not codes.
            Source::Shards { shards, quantization: Some(quantization) }
                if self.dtype == WeightDtype::Blocks && self.lora.is_none() =>
            {
                // All scales are read once, however often the checkpoint is surveyed.
                let known = self.kinds.entry(name.to_owned()).or_default();
                let known = &mut known[usize::from(is_linear)];
                if known.is_none() {
                    let matrix = quantization.find(shards, name, shape, is_linear)?;
                    *known = Some(matrix.map_or(Ok(None), |matrix| matrix.kept())?);
                }
                Ok(known.flatten())
            }
            Source::Random { quantization: Some(quantization), .. }
                if self.dtype == WeightDtype::Blocks =>
            {
                Ok(quantization.supposed(name, shape, is_linear))
            }
            _ => Ok(None),
        }
    }
}

/// Bytes of a matrix in blocks.
fn kept_bytes(shape: &[usize], kind: BlockType) -> usize {
    match shape {
        [rows, columns] => kind.row_bytes(*columns).unwrap_or(0).saturating_mul(*rows),
        _ => 0,
    }
}
