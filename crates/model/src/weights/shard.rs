//! Tensors in safetensors files.

use crate::LoadError;
use crate::files::{Bytes, Files};
use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use std::collections::BTreeMap;

/// Bytes of the length field before a safetensors header.
const LENGTH_BYTES: usize = 8;

/// One safetensors file.
pub(super) struct Shard {
    pub(super) name: String,
    bytes: Bytes,
    metadata: Metadata,
    /// Offset of the tensors' bytes.
    start: usize,
}

impl Shard {
    pub(super) fn open(files: &Files, name: &str) -> Result<Self, LoadError> {
        let bytes = files.open(name)?;
        let (header, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| LoadError::Corrupt {
                file: name.to_owned(),
                reason: cut_short(&bytes).unwrap_or_else(|| error.to_string()),
            })?;
        Ok(Self { name: name.to_owned(), bytes, metadata, start: LENGTH_BYTES + header })
    }

    /// Bytes of all tensors in the file.
    pub(super) fn stored_bytes(&self) -> u64 {
        (self.bytes.len() - self.start) as u64
    }

    /// Bytes of the tensors in bf16.
    pub(super) fn brief_bytes(&self) -> u64 {
        let tensors = self.metadata.tensors();
        let brief = tensors.values().filter(|info| info.dtype == Dtype::BF16);
        let bytes = |(from, to): (usize, usize)| to.saturating_sub(from) as u64;
        brief.map(|info| bytes(info.data_offsets)).sum()
    }

    /// Names of all tensors in the file.
    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.tensors().into_keys().collect()
    }

    /// The stored shape of a tensor, `None` if it is not stored.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.metadata.info(name)?.shape)
    }
}

/// A stored tensor with the requested shape and a supported type.
pub(super) struct Stored<'a> {
    shard: &'a Shard,
    /// Its bytes in the file.
    pub(super) bytes: std::ops::Range<usize>,
    dtype: Dtype,
}

/// Looks up a tensor.
///
/// # Errors
/// If the tensor is missing, or has another shape or an unsupported type.
pub(super) fn find<'a>(
    shards: &'a [Shard],
    homes: &BTreeMap<String, usize>,
    name: &str,
    shape: &[usize],
) -> Result<Stored<'a>, LoadError> {
    let missing = |file: &str| LoadError::MissingTensor {
        file: file.to_owned(),
        tensor: name.to_owned(),
        expected: shape.to_vec(),
    };
    let Some(&home) = homes.get(name) else {
        let only = shards.first().filter(|_| shards.len() == 1);
        return Err(missing(only.map_or(super::INDEX, |shard| &shard.name)));
    };
    let shard = &shards[home];
    let info = shard.metadata.info(name).ok_or_else(|| missing(&shard.name))?;
    let (file, tensor) = (shard.name.clone(), name.to_owned());
    if info.shape != shape {
        let (expected, found) = (shape.to_vec(), info.shape.clone());
        return Err(LoadError::Shape { file, tensor, expected, found });
    }
    if !matches!(info.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
        return Err(LoadError::Dtype { file, tensor, found: format!("{:?}", info.dtype) });
    }
    let (from, to) = info.data_offsets;
    Ok(Stored { shard, bytes: shard.start + from..shard.start + to, dtype: info.dtype })
}

impl Stored<'_> {
    /// Appends the elements. The mapped memory pages are released afterwards, so that a loaded
    /// tensor is not in memory twice.
    pub(super) fn read(&self, name: &str, to: &mut Vec<f32>) -> Result<(), LoadError> {
        let slice = self.shard.bytes.slice(self.bytes.clone());
        let bytes = &*slice.map_err(|error| LoadError::Unreadable {
            file: self.shard.name.clone(),
            reason: error.to_string(),
        })?;
        let first = to.len();
        match self.dtype {
            Dtype::F32 => to.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
            Dtype::BF16 => to.extend(halves(bytes).map(|b| half::bf16::from_bits(b).to_f32())),
            _ => to.extend(halves(bytes).map(|b| half::f16::from_bits(b).to_f32())),
        }
        match to[first..].iter().position(|x| !x.is_finite()) {
            Some(index) => Err(LoadError::NotFinite {
                file: self.shard.name.clone(),
                tensor: name.to_owned(),
                found: to[first + index],
                index,
            }),
            None => Ok(()),
        }
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b))
}

/// Describes a truncated safetensors file: its last tensor, the expected and the actual length.
fn cut_short(bytes: &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let header = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: serde_json::Value = serde_json::from_slice(rest.get(..header)?).ok()?;
    let ends = header
        .as_object()?
        .iter()
        .filter_map(|(tensor, entry)| Some((entry.get("data_offsets")?.get(1)?.as_u64()?, tensor)));
    let (end, tensor) = ends.max()?;
    let header = u64::from_le_bytes(*length).checked_add(LENGTH_BYTES as u64)?;
    let expected = header.checked_add(end)?;
    let found = bytes.len() as u64;
    (found < expected)
        .then(|| format!("{tensor}: expected a file of {expected} bytes, found {found}"))
}
