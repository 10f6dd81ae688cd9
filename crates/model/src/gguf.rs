//! GGUF files of LLaDA, Dream, and autoregressive models, as written by llama.cpp's converter.
//!
//! Matrices of the types of [`kernels::BlockType`] are kept in their blocks if the checkpoint is loaded
//! so. All others are converted to f32 when they are read (by candle) and stored in the dtype that
//! the checkpoint is loaded with.

mod blocks;
mod frequencies;
mod header;
mod part;
mod tokenizer;

pub(crate) use frequencies::{DIVISORS, check_divisors};
pub(crate) use part::EXPERTS;
use part::Part;
pub use tokenizer::TokenizerJson;

use crate::LoadError;
use crate::config::Keys;
use crate::files::{Bytes, FileSlice, Files};
use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value as Field};
use serde_json::{Map, Value, json};
use std::io::Cursor;

/// Numbers that are expanded at a time.
const SLAB: usize = 1 << 22;

/// One opened file.
pub(crate) struct Gguf {
    /// Its name.
    pub(crate) file: String,
    bytes: Bytes,
    content: Content,
    /// Head width if the converter interleaved the rows of query and key matrices.
    interleaved: Option<usize>,
}

/// The map from the GGUF metadata of one architecture to the keys of its `config.json`.
struct Dialect {
    name: &'static str,
    architecture: &'static str,
    keys: &'static [(&'static str, &'static str)],
    vocabulary: &'static str,
    tied: &'static str,
    biased: &'static str,
    /// Keys whose value the file does not hold.
    fixed: &'static [(&'static str, bool)],
    /// Rows of q and k are interleaved for llama.cpp, which rotates adjacent elements.
    interleaved: bool,
}

const LLADA: Dialect = Dialect {
    name: "llada",
    architecture: "LLaDAModelLM",
    keys: &[
        ("embedding_length", "d_model"),
        ("attention.head_count", "n_heads"),
        ("attention.head_count_kv", "n_kv_heads"),
        ("block_count", "n_layers"),
        ("feed_forward_length", "mlp_hidden_size"),
        ("context_length", "max_sequence_length"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("rope.freq_base", "rope_theta"),
    ],
    vocabulary: "embedding_size",
    tied: "weight_tying",
    biased: "include_qkv_bias",
    fixed: &[],
    interleaved: true,
};

const DREAM: Dialect = Dialect {
    name: "dream",
    architecture: "DreamModel",
    keys: &[
        ("embedding_length", "hidden_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("context_length", "max_position_embeddings"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("rope.freq_base", "rope_theta"),
        ("attention.key_length", "head_dim"),
    ],
    vocabulary: "vocab_size",
    tied: "tie_word_embeddings",
    biased: "attention_bias",
    fixed: &[],
    interleaved: false,
};

const QWEN2: Dialect = Dialect { name: "qwen2", architecture: "Qwen2ForCausalLM", ..DREAM };

const QWEN3: Dialect = Dialect { name: "qwen3", architecture: "Qwen3ForCausalLM", ..DREAM };

/// llama.cpp always divides the weights of a row's experts by their sum.
const QWEN3_MOE: Dialect = Dialect {
    name: "qwen3moe",
    architecture: "Qwen3MoeForCausalLM",
    keys: &[
        ("embedding_length", "hidden_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("block_count", "num_hidden_layers"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("context_length", "max_position_embeddings"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("rope.freq_base", "rope_theta"),
        ("attention.key_length", "head_dim"),
        ("feed_forward_length", "intermediate_size"),
    ],
    fixed: &[("norm_topk_prob", true)],
    ..DREAM
};

const LLAMA: Dialect =
    Dialect { name: "llama", architecture: "LlamaForCausalLM", interleaved: true, ..DREAM };

const ALL: [Dialect; 6] = [LLADA, DREAM, QWEN2, QWEN3, QWEN3_MOE, LLAMA];

/// The first `NEEDED` keys of a dialect are required.
const NEEDED: usize = 6;
const TABLE: &str = "token_embd.weight";

impl Gguf {
    /// Opens the file and returns its metadata as a configuration.
    ///
    /// # Errors
    /// If it is not a GGUF file, or has an unsupported architecture.
    pub(crate) fn open(files: &Files, file: &str) -> Result<(Self, Keys), LoadError> {
        let bytes = files.open(file)?;
        header::check(&bytes).map_err(|fault| fault.in_file(file))?;
        let content = Content::read(&mut Cursor::new(&*bytes));
        let content = content.map_err(|error| LoadError::Corrupt {
            file: file.to_owned(),
            reason: first_line(&error),
        })?;
        check_sizes(file, &content)?;
        let found = content.metadata.get("general.architecture");
        let found = found.and_then(|field| field.to_string().ok().cloned());
        let known = |dialect: &Dialect| Some(dialect.name) == found.as_deref();
        let dialect = ALL.into_iter().find(known).ok_or_else(|| LoadError::Key {
            file: file.to_owned(),
            key: "general.architecture".to_owned(),
            expected: format!("one of {}", ALL.map(|dialect| dialect.name).join(", ")),
            found: found.map_or_else(|| "nothing".to_owned(), |name| format!("{name:?}")),
        })?;
        let keys = dialect.configuration(file, &content)?;
        let of = |key: &str| keys.count(key).map(|count| count.max(1));
        let width = match keys.optional_count("head_dim")? {
            Some(width) => width,
            None => of(dialect.keys[0].1)? / of(dialect.keys[1].1)?,
        };
        let gguf = Self {
            file: file.to_owned(),
            bytes,
            content,
            interleaved: dialect.interleaved.then_some(width),
        };
        Ok((gguf, keys))
    }

    /// The stored shape of a tensor, `None` if it is not stored.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        let part = Part::of(name);
        part.shape(self.content.tensor_infos.get(&part.tensor)?.shape.dims())
    }

    /// The tensor of the file that a tensor lies in.
    pub(crate) fn whole(name: &str) -> String {
        Part::of(name).tensor
    }

    /// Names of all tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.content.tensor_infos.keys()
    }

    /// Bytes of all tensors.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let sizes = self.content.tensor_infos.values();
        sizes.map(|info| stored(info) as u64).sum()
    }

    /// Bytes of the tensors in bf16.
    pub(crate) fn brief_bytes(&self) -> u64 {
        let infos = self.content.tensor_infos.values();
        let brief = infos.filter(|info| info.ggml_dtype == GgmlDType::BF16);
        brief.map(|info| stored(info) as u64).sum()
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
        to: &mut Vec<f32>,
    ) -> Result<usize, LoadError> {
        let (part, info) = self.find(name, shape)?;
        if reads {
            let corrupt = |error: candle_core::Error| LoadError::Corrupt {
                file: self.file.clone(),
                reason: format!("{name}: {}", first_line(&error)),
            };
            let bytes = self.data(name, &part, info)?;
            let first = to.len();
            match self.interleaved.filter(|_| is_rotated(name)) {
                Some(head) => {
                    let mut values = Vec::new();
                    expand(&bytes, info.ggml_dtype, shape, SLAB, &mut values).map_err(corrupt)?;
                    deinterleave(&values, head, shape.first().copied().unwrap_or(0), to);
                }
                None => expand(&bytes, info.ggml_dtype, shape, SLAB, to).map_err(corrupt)?,
            }
            if let Some(index) = to[first..].iter().position(|x| !x.is_finite()) {
                return Err(LoadError::NotFinite {
                    file: self.file.clone(),
                    tensor: name.to_owned(),
                    found: to[first + index],
                    index,
                });
            }
        }
        Ok(part.range(info).1)
    }

    /// The entry that a tensor of this shape lies in, and where.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(Part, &TensorInfo), LoadError> {
        let (file, tensor) = (self.file.clone(), name.to_owned());
        let expected = shape.to_vec();
        let part = Part::of(name);
        let Some(info) = self.content.tensor_infos.get(&part.tensor) else {
            return Err(LoadError::MissingTensor { file, tensor, expected });
        };
        if part.shape(info.shape.dims()) != Some(shape) {
            let found = info.shape.dims().to_vec();
            return Err(LoadError::Shape { file, tensor, expected, found });
        }
        Ok((part, info))
    }

    /// The bytes of a tensor.
    fn data(&self, name: &str, part: &Part, info: &TensorInfo) -> Result<FileSlice<'_>, LoadError> {
        let (before, length) = part.range(info);
        let start = self.content.tensor_data_offset.checked_add(info.offset);
        let start = start.and_then(|start| start.checked_add(before));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(length)?));
        let range = range.filter(|range| range.end <= self.bytes.len());
        let range = range.ok_or_else(|| LoadError::Corrupt {
            file: self.file.clone(),
            reason: format!("{name}: the file ends in the tensor"),
        })?;
        self.bytes.slice(range).map_err(|error| LoadError::Unreadable {
            file: self.file.clone(),
            reason: error.to_string(),
        })
    }
}

/// Appends the numbers of a tensor of this shape, about `slab` of them at a time: candle's copies are
/// then small beside the tensor.
fn expand(
    bytes: &[u8],
    dtype: GgmlDType,
    shape: &[usize],
    slab: usize,
    to: &mut Vec<f32>,
) -> candle_core::Result<()> {
    let count = shape.iter().product::<usize>();
    let rows = shape.first().copied().unwrap_or(1).max(1);
    let (width, length) = (count / rows, bytes.len() / rows);
    to.reserve(count);
    let at_once = (slab / width.max(1)).max(1);
    // Rows that are not whole blocks are refused with the shape of the tensor.
    let is_whole = width.is_multiple_of(dtype.block_size());
    let at_once = if is_whole { at_once } else { rows };
    for first in (0..rows).step_by(at_once) {
        let last = (first + at_once).min(rows);
        // A copy, because the blocks are read at their alignment.
        let bytes = bytes[first * length..last * length].to_vec();
        let part = match is_whole {
            true => vec![last - first, width],
            false => shape.to_vec(),
        };
        let tensor = qtensor_from_ggml(dtype, &bytes, part, &Device::Cpu)?;
        let tensor = tensor.dequantize(&Device::Cpu)?.flatten_all()?;
        to.extend_from_slice(&tensor.to_vec1::<f32>()?);
    }
    Ok(())
}

impl Dialect {
    /// Converts the metadata to the family's configuration.
    fn configuration(&self, file: &str, content: &Content) -> Result<Keys, LoadError> {
        let mut map = Map::new();
        map.insert("architectures".to_owned(), json!([self.architecture]));
        let fields = &content.metadata;
        let scaling = frequencies::scaling(file, self.name, fields)?;
        map.extend(scaling.map(|scaling| ("rope_scaling".to_owned(), scaling)));
        for (number, (gguf_key, config_key)) in self.keys.iter().enumerate() {
            let key = format!("{}.{gguf_key}", self.name);
            let value = fields.get(&key).and_then(plain);
            if value.is_none() && number < NEEDED {
                return Err(LoadError::Key {
                    file: file.to_owned(),
                    key,
                    expected: "a positive whole number".to_owned(),
                    found: "nothing".to_owned(),
                });
            }
            map.extend(value.map(|value| ((*config_key).to_owned(), value)));
        }
        let fixed = self.fixed.iter();
        map.extend(fixed.map(|(key, value)| ((*key).to_owned(), json!(value))));
        let ids = ["mask_token_id", "eos_token_id"];
        for id in ids {
            let value = fields.get(&format!("tokenizer.ggml.{id}"));
            map.extend(value.and_then(plain).map(|value| (id.to_owned(), value)));
        }
        let has = |name: &str| content.tensor_infos.contains_key(name);
        let rows = content.tensor_infos.get(TABLE);
        let rows = rows.and_then(|info| info.shape.dims().first());
        let rows = *rows.ok_or_else(|| LoadError::MissingTensor {
            file: file.to_owned(),
            tensor: TABLE.to_owned(),
            expected: Vec::new(),
        })?;
        let vocab_size = fields.get(&format!("{}.vocab_size", self.name));
        map.insert("vocab_size".to_owned(), json!(rows));
        map.insert(self.vocabulary.to_owned(), json!(rows));
        if self.vocabulary != "vocab_size" {
            let value = vocab_size.and_then(plain);
            map.extend(value.map(|value| ("vocab_size".to_owned(), value)));
        }
        map.insert(self.tied.to_owned(), json!(!has("output.weight")));
        map.insert(self.biased.to_owned(), json!(has("blk.0.attn_q.bias")));
        Ok(Keys::new(file, map))
    }
}

/// A numeric metadata value as JSON.
fn plain(field: &Field) -> Option<Value> {
    match field {
        Field::U8(n) => Some(json!(n)),
        Field::U16(n) => Some(json!(n)),
        Field::U32(n) => Some(json!(n)),
        Field::U64(n) => Some(json!(n)),
        Field::I32(n) => Some(json!(n)),
        Field::I64(n) => Some(json!(n)),
        Field::F32(x) => Some(json!(x)),
        Field::F64(x) => Some(json!(x)),
        _ => None,
    }
}

/// Checks that the size of every tensor is a number of bytes.
fn check_sizes(file: &str, content: &Content) -> Result<(), LoadError> {
    for (name, info) in &content.tensor_infos {
        let dims = info.shape.dims();
        let elements = dims.iter().try_fold(1, |count: usize, size| count.checked_mul(*size));
        let bytes = elements.and_then(|count| count.checked_mul(info.ggml_dtype.type_size()));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(LoadError::Corrupt {
                file: file.to_owned(),
                reason: format!("{name}: the size of the shape {dims:?} has no 64 bits"),
            });
        }
    }
    Ok(())
}

/// Bytes of a tensor in the file.
fn stored(info: &TensorInfo) -> usize {
    let blocks = info.shape.elem_count() / info.ggml_dtype.block_size();
    blocks * info.ggml_dtype.type_size()
}

/// True if the tensor projects to queries or keys, which are rotated.
fn is_rotated(name: &str) -> bool {
    name.contains(".attn_q.") || name.contains(".attn_k.")
}

/// Appends the `rows` rows of `values` in their original order. In `values`, the two halves of each
/// head of `head` rows are interleaved: row 2 i + j of a head is row i of its half j.
fn deinterleave<T: Copy>(values: &[T], head: usize, rows: usize, to: &mut Vec<T>) {
    let columns = values.len() / rows.max(1);
    for row in 0..rows {
        let (first, inside) = (row / head * head, row % head);
        let (half, at) = (inside / (head / 2), inside % (head / 2));
        let from = (first + 2 * at + half) * columns;
        to.extend_from_slice(&values[from..from + columns]);
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
                at => (at * 7 + i / 34) as u8,
            })
            .collect();
        let numbers = |slab| {
            let mut to = vec![0.5];
            expand(&bytes, GgmlDType::Q8_0, &shape, slab, &mut to).unwrap();
            to
        };
        let whole = numbers(usize::MAX);
        assert_eq!(whole.len(), 1 + 7 * 64);
        assert!(whole.iter().any(|x| *x > 1.0));
        for slab in [1, 128, 200, 1000] {
            assert_eq!(numbers(slab), whole, "{slab}");
        }
    }
}
