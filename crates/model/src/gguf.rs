//! GGUF files as written by llama.cpp's converter, and by those of its open requests for LLaDA2 and
//! DiffusionGemma.
//!
//! Matrices of most types are kept in blocks ([`kernels::BlockType`]) if the checkpoint is loaded so. All others are
//! converted to f32 when they are read and stored in the dtype that the checkpoint is loaded with.

mod blocks;
mod canvas;
mod dialect;
mod facts;
mod frequencies;
mod header;
mod listed;
mod location;
mod q3_k;
mod tokenizer;
mod types;
mod volumes;

use dialect::Dialect;
use facts::Facts;
pub(crate) use frequencies::{DIVISORS, check_divisors};
use location::Location;
pub(crate) use location::{EXPERTS, SHARED};
pub use tokenizer::TokenizerJson;
use types::{Read, TensorInfo, TensorType};
use volumes::{Fields, Volumes};

use crate::LoadError;
use crate::config::Keys;
use crate::files::{FileSlice, Files};
use candle_core::Device;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use kernels::BlockRows;
use safetensors::tensor::Dtype;

/// Numbers that are expanded at a time.
const SLAB: usize = 1 << 22;

/// One opened model: a file, or the parts of one that is split.
pub(crate) struct Gguf {
    /// The name of the file, or of the first shard.
    pub(crate) file: String,
    fields: Fields,
    volumes: Volumes,
    /// Head width if the converter interleaved the rows of query and key matrices.
    interleaved: Option<usize>,
}

impl Gguf {
    /// Opens the file, and the other parts of the same model, and returns its metadata as a
    /// configuration.
    ///
    /// # Errors
    /// If it is not a GGUF file, lacks a shard, or has an unsupported architecture.
    pub(crate) fn open(files: &Files, file: &str) -> Result<(Self, Keys), LoadError> {
        let (fields, volumes) = Volumes::open(files, file)?;
        let facts = Facts { file, fields: &fields, volumes: &volumes };
        let dialect = Dialect::find(&facts)?;
        let keys = dialect.configuration(&facts)?;
        let interleaved = match dialect.interleaved {
            true => Some(dialect.head_width(&keys)?),
            false => None,
        };
        Ok((Self { file: file.to_owned(), fields, volumes, interleaved }, keys))
    }

    /// The stored shape of a tensor, `None` if it is not stored.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        let location = Location::of(name);
        location.shape(&self.volumes.info(&location.tensor)?.dims)
    }

    /// The tensor of the file that a tensor lies in.
    pub(crate) fn whole(name: &str) -> String {
        Location::of(name).tensor
    }

    /// Names of all tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.volumes.names()
    }

    /// Bytes of all tensors.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.volumes.infos().map(|info| info.bytes() as u64).sum()
    }

    /// Bytes of the tensors in a format of 16 bits.
    pub(crate) fn bytes_in(&self, half: Dtype) -> u64 {
        let half = if half == Dtype::F16 { "F16" } else { "BF16" };
        let some = self.volumes.infos().filter(|info| info.kind.name == half);
        some.map(|info| info.bytes() as u64).sum()
    }

    /// Appends the elements of a tensor in row-major order if `reads`. Returns the number of bytes
    /// that the tensor takes in the file.
    ///
    /// # Errors
    /// If the tensor is missing, has another shape, is truncated, or contains numbers that are not
    /// finite.
    pub(crate) fn append(
        &self,
        name: &str,
        shape: &[usize],
        reads: bool,
        out: &mut Vec<f32>,
    ) -> Result<usize, LoadError> {
        let (location, info) = self.find(name, shape)?;
        if reads {
            let corrupt = |reason: String| LoadError::Corrupt {
                file: self.file.clone(),
                reason: format!("{name}: {reason}"),
            };
            let bytes = self.data(name, &location, info)?;
            let first = out.len();
            match self.interleaved.filter(|_| is_rotated(name)) {
                Some(head) => {
                    let mut values = Vec::new();
                    expand(&bytes, info.kind, shape, SLAB, &mut values).map_err(corrupt)?;
                    deinterleave(&values, head, shape.first().copied().unwrap_or(0), out);
                }
                None => expand(&bytes, info.kind, shape, SLAB, out).map_err(corrupt)?,
            }
            if let Some(index) = out[first..].iter().position(|x| !x.is_finite()) {
                return Err(LoadError::NotFinite {
                    file: self.file.clone(),
                    tensor: name.to_owned(),
                    found: out[first + index],
                    index,
                });
            }
        }
        Ok(location.range(info).1)
    }

    /// The entry that a tensor of this shape lies in, and where.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(Location, &TensorInfo), LoadError> {
        let (file, tensor) = (self.file.clone(), name.to_owned());
        let expected = shape.to_vec();
        let location = Location::of(name);
        let Some(info) = self.volumes.info(&location.tensor) else {
            return Err(LoadError::MissingTensor { file, tensor, expected });
        };
        if location.shape(&info.dims) != Some(shape) {
            let found = info.dims.clone();
            return Err(LoadError::Shape { file, tensor, expected, found });
        }
        Ok((location, info))
    }

    /// The bytes of a tensor.
    fn data(
        &self,
        name: &str,
        location: &Location,
        info: &TensorInfo,
    ) -> Result<FileSlice<'_>, LoadError> {
        let (before, length) = location.range(info);
        self.volumes.data(name, &location.tensor, before, length)
    }
}

/// Appends the numbers of a tensor of this shape, about `slab` of them at a time: copies are then small beside
/// the tensor.
fn expand(
    bytes: &[u8],
    kind: &TensorType,
    shape: &[usize],
    slab: usize,
    out: &mut Vec<f32>,
) -> Result<(), String> {
    let width = shape.last().copied().unwrap_or(1);
    if !width.is_multiple_of(kind.numbers) {
        let (name, expected) = (kind.name, kind.numbers);
        return Err(format!(
            "expected rows of a multiple of {expected} numbers in {name}, found {shape:?}"
        ));
    }
    out.reserve(shape.iter().product());
    let length = (width / kind.numbers * kind.bytes).max(1);
    let at_once = (slab / width.max(1)).clamp(1, bytes.len().max(1));
    for bytes in bytes.chunks(at_once * length) {
        let rows = bytes.len() / length;
        // Copies, because candle reads numbers and blocks at their alignment.
        let numbers = match kind.read {
            Read::Numbers(dtype) => {
                let (bytes, dims) = (bytes.to_vec(), vec![rows, width]);
                let tensor = qtensor_from_ggml(dtype, &bytes, dims, &Device::Cpu);
                tensor.and_then(|tensor| tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1())
            }
            Read::Same(kind) => {
                let bytes = bytes.to_vec();
                BlockRows { kind, rows, bytes: &bytes }.numbers()
            }
            Read::As(kind, convert) => {
                let bytes = convert(bytes).map_err(|_| "a scale that cannot be kept".to_owned())?;
                BlockRows { kind, rows, bytes: &bytes }.numbers()
            }
        };
        out.extend(numbers.map_err(|error: candle_core::Error| first_line(&error))?);
    }
    Ok(())
}

/// True if the tensor projects to queries or keys, which are rotated.
fn is_rotated(name: &str) -> bool {
    name.contains(".attn_q.") || name.contains(".attn_k.")
}

/// Appends the `rows` rows of `values` in their original order. In `values`, the two halves of each
/// head of `head` rows are interleaved: row 2 i + j of a head is row i of its half j.
fn deinterleave<T: Copy>(values: &[T], head: usize, rows: usize, out: &mut Vec<T>) {
    let columns = values.len() / rows.max(1);
    for row in 0..rows {
        let (first, inside) = (row / head * head, row % head);
        let (half, pair) = (inside / (head / 2), inside % (head / 2));
        let start = (first + 2 * pair + half) * columns;
        out.extend_from_slice(&values[start..start + columns]);
    }
}

/// The first line of an error; candle's errors contain backtraces.
fn first_line(error: &candle_core::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_depend_on_how_many_are_expanded_at_a_time() {
        let shape = [7, 64];
        // Two blocks of 34 bytes a row: a scale of 16 bits and 32 integers.
        let blocks = 7 * 2;
        let bytes: Vec<u8> = (0..blocks * 34)
            .map(|i| match i % 34 {
                0 => 0x12,
                1 => 0x30 + (i / 34) as u8,
                index => (index * 7 + i / 34) as u8,
            })
            .collect();
        let numbers = |slab| {
            let mut out = vec![0.5];
            let kind = TensorType::of(8).unwrap();
            expand(&bytes, kind, &shape, slab, &mut out).unwrap();
            out
        };
        let whole = numbers(usize::MAX);
        assert_eq!(whole.len(), 1 + 7 * 64);
        assert!(whole.iter().any(|x| *x > 1.0));
        for slab in [1, 128, 200, 1000] {
            assert_eq!(numbers(slab), whole, "{slab}");
        }
    }
}
