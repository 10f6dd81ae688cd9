//! Tensors in safetensors files.

use super::index::Index;
use super::places::{Place, Share, places};
use crate::LoadError;
use crate::files::{Bytes, FileSlice, Files, shard_stem};
use half::f16;
use kernels::append;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use std::collections::BTreeMap;

/// Bytes of the length field before a safetensors header.
const LENGTH_BYTES: usize = 8;

/// The file of a LoRA adapter, which is no model.
const ADAPTER: &str = "adapter_model.safetensors";

/// One safetensors file.
struct Shard {
    name: String,
    bytes: Bytes,
    metadata: Metadata,
    /// Offset of the tensors' bytes.
    start: usize,
}

impl Shard {
    fn open(files: &Files, name: &str) -> Result<Self, LoadError> {
        let bytes = files.open(name)?;
        let (header, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| LoadError::Corrupt {
                file: name.to_owned(),
                reason: cut_short(&bytes).unwrap_or_else(|| error.to_string()),
            })?;
        Ok(Self { name: name.to_owned(), bytes, metadata, start: LENGTH_BYTES + header })
    }
}

/// The safetensors files of a checkpoint or an adapter.
pub(super) struct Shards {
    shards: Vec<Shard>,
    /// Index of the shard of each tensor.
    homes: BTreeMap<String, usize>,
}

impl Shards {
    /// Opens one file.
    pub(super) fn single(files: &Files, name: &str) -> Result<Self, LoadError> {
        let shard = Shard::open(files, name)?;
        let homes = shard.metadata.tensors().into_keys().map(|name| (name, 0)).collect();
        Ok(Self { shards: vec![shard], homes })
    }

    /// Opens the files of an index.
    pub(super) fn indexed(files: &Files) -> Result<Self, LoadError> {
        let Index { shards, homes } = Index::parse(&files.open(super::INDEX)?)?;
        let shards = shards.iter().map(|shard| Shard::open(files, shard));
        Ok(Self { shards: shards.collect::<Result<_, _>>()?, homes })
    }

    /// Opens the only safetensors file, of any name but an adapter's.
    ///
    /// # Errors
    /// No file, several files, or one of several shards.
    pub(super) fn alone(files: &Files) -> Result<Self, LoadError> {
        let mut names = files.safetensors();
        names.retain(|name| name != ADAPTER);
        let is_whole = |name: &String| shard_stem(name).is_none_or(|(_, shards)| shards == 1);
        let place = files.place();
        match &*names {
            [] => {
                let file = format!("{} or {}", super::SINGLE, super::INDEX);
                Err(LoadError::MissingFile { file, place })
            }
            [name] if is_whole(name) => Self::single(files, name),
            _ => Err(LoadError::OtherNames { place, found: names.join(", ") }),
        }
    }

    /// Bytes of all tensors.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| (shard.bytes.len() - shard.start) as u64).sum()
    }

    /// The dtype and the bytes of every tensor.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (Dtype, u64)> {
        self.shards.iter().flat_map(|shard| {
            let tensors = shard.metadata.tensors();
            let sizes = tensors.into_values().map(|info| {
                let (start, end) = info.data_offsets;
                (info.dtype, end.saturating_sub(start) as u64)
            });
            sizes.collect::<Vec<_>>()
        })
    }

    /// Names of all tensors, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.homes.keys()
    }

    /// True if a module with this name, or a longer one that ends with it, has a matrix.
    pub(super) fn has_module(&self, name: &str) -> bool {
        self.names().filter_map(|tensor| tensor.rsplit_once('.')).any(|(module, part)| {
            let is_matrix = ["weight", "qweight", "weight_packed"].contains(&part);
            is_matrix && is_or_ends_with(module, name)
        })
    }

    /// The stored shape of a tensor, `None` if it is not stored, or as a share of another.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        let found = self.locate(name)?;
        found.share.is_none().then_some(&*found.info.shape)
    }

    /// The stored type of a tensor, `None` if it is not stored.
    pub(super) fn dtype(&self, name: &str) -> Option<Dtype> {
        Some(self.locate(name)?.info.dtype)
    }

    /// The name in the files of a tensor, or of the one that it is a share of.
    pub(super) fn stored_name(&self, name: &str) -> Option<&str> {
        Some(self.locate(name)?.name)
    }

    /// File and name of the first tensor that is stored where a tensor may be, whatever its shape.
    pub(super) fn first_place(&self, name: &str) -> Option<(&str, &str)> {
        places(name).find_map(|place| {
            let (name, home) = self.homes.get_key_value(&place.name)?;
            Some((&*self.shards[*home].name, &**name))
        })
    }

    /// Where a tensor is stored.
    fn locate(&self, name: &str) -> Option<Located<'_>> {
        places(name).find_map(|Place { name, share }| {
            let (name, home) = self.homes.get_key_value(&name)?;
            let shard = &self.shards[*home];
            let info = shard.metadata.info(name)?;
            let shape = match share {
                Some(share) => share.shape(&info.shape)?,
                None => info.shape.clone(),
            };
            Some(Located { name, shard, info, share, shape })
        })
    }

    /// A tensor of numbers in 16 or 32 bits.
    ///
    /// # Errors
    /// If the tensor is missing, or has another shape or an unsupported type.
    pub(super) fn find(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, LoadError> {
        let stored = self.find_any(name, &[shape])?;
        if !FLOATS.contains(&stored.dtype) {
            let (file, tensor) = (stored.shard.name.clone(), name.to_owned());
            return Err(LoadError::Dtype { file, tensor, found: format!("{:?}", stored.dtype) });
        }
        Ok(stored)
    }

    /// A tensor of any type in one of these shapes.
    ///
    /// # Errors
    /// If the tensor is missing, or has another shape.
    pub(super) fn find_any(
        &self,
        name: &str,
        shapes: &[&[usize]],
    ) -> Result<Stored<'_>, LoadError> {
        let expected = || shapes.first().map(|shape| shape.to_vec()).unwrap_or_default();
        let Some(Located { name, shard, info, share, shape }) = self.locate(name) else {
            return Err(self.missing(name, expected()));
        };
        if !shapes.contains(&&*shape) {
            let (file, tensor) = (shard.name.clone(), name.to_owned());
            let found = info.shape.clone();
            let expected = share.map_or(expected(), |share| share.whole(&expected(), &found));
            return Err(LoadError::Shape { file, tensor, expected, found });
        }
        let (start, end) = info.data_offsets;
        let [start, end] = match share {
            Some(share) => share.bytes(&info.shape, [start, end]),
            None => [start, end],
        };
        Ok(Stored { shard, bytes: shard.start + start..shard.start + end, dtype: info.dtype })
    }
}

impl Shards {
    /// The error for a tensor that is not stored, which is named as the codes of its matrix are.
    fn missing(&self, name: &str, expected: Vec<usize>) -> LoadError {
        let only = self.shards.first().filter(|_| self.shards.len() == 1);
        let home = self.homes.get(name).map(|home| &self.shards[*home]).or(only);
        let file = home.map_or(super::INDEX, |shard| &shard.name).to_owned();
        let beside = name.rsplit_once('.').and_then(|(module, part)| {
            let found = self.locate(&format!("{module}.weight"))?;
            let share = found.share?;
            let module = found.name.strip_suffix("weight")?;
            Some((format!("{module}{part}"), share.whole(&expected, &found.info.shape)))
        });
        let (tensor, expected) = beside.unwrap_or((name.to_owned(), expected));
        LoadError::MissingTensor { file, tensor, expected }
    }
}

/// A tensor in its file.
struct Located<'a> {
    /// The name in the file.
    name: &'a str,
    shard: &'a Shard,
    /// The tensor of this name in the file.
    info: &'a TensorInfo,
    /// The part of it that is meant; `None` = all of it.
    share: Option<Share>,
    /// The tensor's shape.
    shape: Vec<usize>,
}

/// True if a module has this name, or a longer one that ends with it.
pub(super) fn is_or_ends_with(module: &str, name: &str) -> bool {
    let rest = module.strip_suffix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Types of numbers that are read as they are.
pub(super) const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::BF16, Dtype::F16];

/// A stored tensor with the requested shape.
pub(super) struct Stored<'a> {
    shard: &'a Shard,
    /// Its bytes in the file.
    pub(super) bytes: std::ops::Range<usize>,
    pub(super) dtype: Dtype,
}

impl Stored<'_> {
    /// The name of its file.
    pub(super) fn file(&self) -> &str {
        &self.shard.name
    }

    /// Its bytes. Dropping them releases the mapped memory pages, so that a loaded tensor is not in memory
    /// twice.
    pub(super) fn slice(&self) -> Result<FileSlice<'_>, LoadError> {
        let slice = self.shard.bytes.slice(self.bytes.clone());
        slice.map_err(|error| LoadError::Unreadable {
            file: self.shard.name.clone(),
            reason: error.to_string(),
        })
    }

    /// Appends the elements, which are finite numbers.
    pub(super) fn read(&self, name: &str, out: &mut Vec<f32>) -> Result<(), LoadError> {
        let bytes = &*self.slice()?;
        let (first, halves) = (out.len(), bytes.as_chunks().0);
        let word = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes);
        let finite = match self.dtype {
            Dtype::F32 => {
                let words = bytes.as_chunks().0;
                append(out, words.len(), |range| {
                    words[range].iter().map(|word| f32::from_le_bytes(*word))
                })
            }
            Dtype::BF16 => append(out, halves.len(), |range| {
                halves[range].iter().map(|half| f32::from_bits(u32::from(word(half)) << 16))
            }),
            _ => append(out, halves.len(), |range| {
                halves[range].iter().map(|half| f16::from_bits(word(half)).to_f32())
            }),
        };
        if finite { Ok(()) } else { self.check_finite(name, &out[first..]) }
    }

    /// Refuses numbers of this file that are not finite.
    pub(super) fn check_finite(&self, name: &str, numbers: &[f32]) -> Result<(), LoadError> {
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(index) => Err(LoadError::NotFinite {
                file: self.shard.name.clone(),
                tensor: name.to_owned(),
                found: numbers[index],
                index,
            }),
            None => Ok(()),
        }
    }
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
