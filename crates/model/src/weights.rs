//! Tensors by name: from safetensors or GGUF files, or random for benchmarks.

mod blocks;
mod drafter;
mod gated;
mod index;
mod lora;
mod places;
mod quantized;
mod random;
mod rows;
mod shard;

pub(crate) use drafter::DrafterFiles;
pub(crate) use gated::{GatedFactors, Module, widened};
pub(crate) use quantized::Quantization;
pub(crate) use rows::each_row;

use crate::files::Files;
use crate::gguf::Gguf;
use crate::memory::{Memory, floats};
use crate::sharing::ExpertSharing;
use crate::{LoadError, RowGate};
use kernels::{BlockType, KvDtype, WeightDtype};
use lora::Lora;
use random::random;
use safetensors::tensor::Dtype;
use shard::Shards;
use std::collections::{BTreeMap, BTreeSet};

/// The weights file of an unsharded checkpoint.
const SINGLE: &str = "model.safetensors";
/// The index of a sharded checkpoint.
const INDEX: &str = "model.safetensors.index.json";
/// Maximum number of tensors that a configuration asks for: three times as many as the largest
/// published checkpoint has.
const MOST_TENSORS: usize = 1 << 18;
/// Bytes in bf16 from which on `auto` keeps the dtype: smaller weights fit as f32, which is exact.
const LARGE: u64 = 512 << 20;
/// File names of pickled checkpoints.
const PICKLES: [&str; 3] =
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"];
/// Suffixes of tensors that are ignored without a warning: buffers stored by old exports.
const HARMLESS: [&str; 3] = ["rotary_emb.inv_freq", "rotary_emb.sin_cached", "rope_freqs.weight"];

/// All tensors of a checkpoint.
pub(crate) struct Weights {
    source: Source,
    /// Names that were requested.
    used: BTreeSet<String>,
    /// Number of elements that were requested.
    elements: usize,
    /// True if tensors are read. If not, they are looked up and checked, and returned empty.
    pub(crate) reads: bool,
    /// The memory of the tensors that were requested.
    pub(crate) memory: Memory,
    /// Called after each tensor with the number of file bytes read for it.
    pub(crate) watch: Option<Watch>,
    /// Dtype in which matrices are stored.
    pub(crate) dtype: WeightDtype,
    /// Number format of keys and values, if it is not the backend's.
    pub(crate) kv_dtype: Option<KvDtype>,
    /// True if keys and values on the CPU are bf16 beside matrices that are not f32, unless `kv_dtype` says
    /// otherwise; false if they are f32 then.
    pub(crate) kv_of_matrices: bool,
    /// The pool of experts that the rows of a block share.
    pub(crate) sharing: Option<ExpertSharing>,
    /// Tokens of the tokenizer; rows of the LM head after them are padding.
    pub(crate) vocabulary: Option<usize>,
    /// Maximum positions of a sequence, if fewer than the model's context.
    pub(crate) positions: Option<usize>,
    /// Length of the blocks after the prompt that weights with full attention were fine-tuned for.
    pub(crate) prompt_blocks: Option<u32>,
    /// True if block-causal weights were fine-tuned for strictly causal rows that predict the next token.
    pub(crate) next_tokens: bool,
    /// An adapter whose products are added to matrices.
    lora: Option<Lora>,
    /// The block types that quantized matrices are kept in, for other uses and for those of a linear layer.
    kinds: BTreeMap<String, [Option<Option<BlockType>>; 2]>,
}

/// A callback for bytes read.
pub(crate) type Watch = Box<dyn FnMut(u64) + Send>;

enum Source {
    Shards {
        shards: Shards,
        /// The publisher's quantization.
        quantization: Option<Quantization>,
    },
    Gguf(Gguf),
    Random {
        seed: u64,
        /// The number of weights in the files that they stand for.
        numbers: u64,
        /// Their type there.
        stored: Dtype,
        /// The publisher's quantization of these files.
        quantization: Option<Quantization>,
    },
}

impl Weights {
    /// Opens the safetensors weights of a checkpoint.
    pub(crate) fn open(
        files: &Files,
        quantization: Option<Quantization>,
    ) -> Result<Self, LoadError> {
        let pickle = PICKLES.into_iter().find(|name| files.contains(name));
        let shards = match (files.contains(SINGLE), files.contains(INDEX), pickle) {
            (true, ..) => Shards::single(files, SINGLE)?,
            (false, true, _) => Shards::indexed(files)?,
            (false, false, Some(pickle)) => {
                return Err(LoadError::Pickle { file: pickle.to_owned() });
            }
            (false, false, None) => Shards::alone(files)?,
        };
        let quantization = quantization.filter(|stated| stated.is_meant(&shards));
        Ok(Self::new(Source::Shards { shards, quantization }))
    }

    /// The tensors of a GGUF file.
    pub(crate) fn gguf(file: Gguf) -> Self {
        Self::new(Source::Gguf(file))
    }

    /// True if the tensors come from a GGUF file and have llama.cpp's names.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.source, Source::Gguf(_))
    }

    /// The GGUF file that the tensors come from, if any.
    pub(crate) fn as_gguf(&self) -> Option<&Gguf> {
        match &self.source {
            Source::Gguf(gguf) => Some(gguf),
            _ => None,
        }
    }

    /// Opens the tensors of one safetensors file.
    pub(crate) fn open_single(files: &Files, name: &str) -> Result<Self, LoadError> {
        let shards = Shards::single(files, name)?;
        Ok(Self::new(Source::Shards { shards, quantization: None }))
    }

    /// Random weights of any shape: matrices with variance 1 / columns, vectors of ones. The values
    /// depend only on the seed, the name and the shape.
    pub(crate) fn random(seed: u64) -> Self {
        Self::new(Source::Random { seed, numbers: 0, stored: Dtype::F32, quantization: None })
    }

    /// Says that random weights stand for files with `count` weights in a type, of which some are quantized.
    pub(crate) fn suppose(&mut self, count: u64, dtype: Dtype, quantized: Option<Quantization>) {
        if let Source::Random { numbers, stored, quantization, .. } = &mut self.source {
            (*numbers, *stored, *quantization) = (count, dtype, quantized);
        }
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            used: BTreeSet::new(),
            elements: 0,
            reads: true,
            memory: Memory::default(),
            watch: None,
            dtype: WeightDtype::F32,
            kv_dtype: None,
            kv_of_matrices: false,
            sharing: None,
            vocabulary: None,
            positions: None,
            prompt_blocks: None,
            next_tokens: false,
            lora: None,
            kinds: BTreeMap::new(),
        }
    }

    /// Forgets all requests. From now on tensors are read, or only checked if not `reads`.
    pub(crate) fn restart(&mut self, reads: bool) {
        self.used.clear();
        self.elements = 0;
        self.memory = Memory::default();
        self.reads = reads;
    }

    /// Bytes of all tensors in the files.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.source {
            Source::Shards { shards, .. } => shards.stored_bytes(),
            Source::Gguf(file) => file.stored_bytes(),
            Source::Random { numbers, stored, .. } => numbers * stored.bitsize() as u64 / 8,
        }
    }

    /// The elements of a tensor in row-major order.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let mut values = Vec::new();
        self.append_as(name, shape, false, &mut values)?;
        Ok(values)
    }

    /// Appends the elements of a linear layer's matrix in row-major order.
    pub(crate) fn append(
        &mut self,
        name: &str,
        shape: &[usize],
        out: &mut Vec<f32>,
    ) -> Result<(), LoadError> {
        self.append_as(name, shape, true, out)
    }

    fn append_as(
        &mut self,
        name: &str,
        shape: &[usize],
        is_linear: bool,
        out: &mut Vec<f32>,
    ) -> Result<(), LoadError> {
        self.request(name)?;
        let first = out.len();
        let mut transient = floats(count(shape));
        let read = match &self.source {
            Source::Random { seed, .. } => {
                match (self.reads, out.is_empty()) {
                    (false, _) => {}
                    (true, true) => *out = random(*seed, name, shape),
                    (true, false) => out.append(&mut random(*seed, name, shape)),
                }
                0
            }
            Source::Gguf(file) => file.append(name, shape, self.reads, out)?,
            Source::Shards { shards, quantization } => match quantization
                .as_ref()
                .map_or(Ok(None), |found| found.find(shards, name, shape, is_linear))?
            {
                Some(matrix) => {
                    if self.reads {
                        matrix.read(name, out)?;
                    }
                    transient = transient.saturating_add(matrix.extra_bytes());
                    matrix.stored_bytes()
                }
                None => {
                    let tensor = shards.find(name, shape)?;
                    if self.reads {
                        tensor.read(name, out)?;
                    }
                    tensor.bytes.len()
                }
            },
        };
        if let (Some(lora), true) = (&self.lora, self.reads) {
            lora.merge(name, shape, &mut out[first..])?;
        }
        self.received(shape, transient, read);
        Ok(())
    }

    /// Adds the products of an adapter to the matrices that are read from now on, or keeps them for some
    /// rows.
    pub(crate) fn adapt(&mut self, files: &Files, gate: Option<RowGate>) -> Result<(), LoadError> {
        let has_module = |name: &str| match &self.source {
            Source::Shards { shards, .. } => shards.has_module(name),
            _ => false,
        };
        let lora = Lora::open(files, gate, |name| self.base(name), has_module)?;
        if !matches!(self.source, Source::Shards { .. }) && lora.gate.is_none() {
            return Err(LoadError::AdapterBase);
        }
        self.lora = Some(lora);
        Ok(())
    }

    /// The shape of a matrix that an adapter may change, or what is found in its place.
    fn base(&self, name: &str) -> Result<&[usize], &'static str> {
        let stores = |name: &str| self.stores(name);
        let is_packed = stores(name) || Quantization::packed(name).iter().any(|name| stores(name));
        let found = if is_packed { "packed codes, which take no adapter" } else { "none" };
        self.shape(name).ok_or(found)
    }

    /// Refuses an adapter for a matrix that was not requested.
    pub(crate) fn check_adapter(&self) -> Result<(), LoadError> {
        let unused = self.lora.as_ref().and_then(|lora| lora.unused(&self.used));
        unused.map_or(Ok(()), Err)
    }

    /// True if the numbers of a tensor are those of bf16 in its file.
    pub(crate) fn is_bf16(&self, name: &str) -> bool {
        match &self.source {
            Source::Shards { shards, quantization } => {
                let is_coded = |found: &Quantization| found.is_bf16(shards, name);
                shards.dtype(name) == Some(Dtype::BF16)
                    || quantization.as_ref().is_some_and(is_coded)
            }
            Source::Gguf(file) => file.is_bf16(name),
            Source::Random { stored, .. } => *stored == Dtype::BF16,
        }
    }

    /// True if random weights stand for files that their publisher quantized.
    pub(crate) fn is_supposed_quantized(&self) -> bool {
        matches!(&self.source, Source::Random { quantization: Some(_), .. })
    }

    /// True if a tensor of a safetensors file has bf16, or codes.
    pub(crate) fn has_short_numbers(&self, name: &str) -> bool {
        match &self.source {
            Source::Shards { shards, .. } => {
                !matches!(shards.dtype(name), Some(Dtype::F32 | Dtype::F16))
            }
            _ => self.is_bf16(name),
        }
    }

    /// True if an adapter changes weights, or some of their rows.
    pub(crate) fn is_adapted(&self) -> bool {
        self.lora.is_some()
    }

    /// The dtype of a checkpoint that is loaded in `dtype`. [`WeightDtype::Blocks`] without blocks or integers
    /// in the file is bf16 where most of the file is bf16, or quantized by its publisher, and large; else f32.
    pub(crate) fn resolved(&self, dtype: WeightDtype) -> WeightDtype {
        let has_blocks = match &self.source {
            // A matrix in blocks has no columns for an adapter.
            Source::Gguf(file) => !file.block_types().is_empty() && self.gate().is_none(),
            Source::Shards { shards, quantization: Some(quantization) } => {
                quantization.is_kept_in(shards.sizes()) && self.lora.is_none()
            }
            Source::Random { quantization: Some(quantization), .. } => quantization.is_kept(),
            _ => false,
        };
        match dtype {
            WeightDtype::Blocks if !has_blocks => match &self.source {
                Source::Shards { shards, quantization: Some(quantization) } => {
                    let expanded = 2 * quantization.numbers(shards.sizes());
                    of_stored(expanded, expanded)
                }
                _ => of_stored(self.bytes_in(Dtype::BF16), self.stored_bytes()),
            },
            dtype => dtype,
        }
    }

    /// As [`Self::resolved`] on a device, whose kernels have no F16: what would be f32 is bf16 where most of
    /// the file is F16 and large.
    pub(crate) fn resolved_on_device(&self, dtype: WeightDtype) -> WeightDtype {
        match (dtype, self.resolved(dtype)) {
            (WeightDtype::Blocks, WeightDtype::F32) => {
                of_stored(self.bytes_in(Dtype::F16), self.stored_bytes())
            }
            (_, resolved) => resolved,
        }
    }

    /// Bytes of the tensors in a format of 16 bits.
    fn bytes_in(&self, half: Dtype) -> u64 {
        match &self.source {
            Source::Shards { shards, .. } => {
                let some = shards.sizes().filter(|(dtype, _)| *dtype == half);
                some.map(|(_, bytes)| bytes).sum()
            }
            Source::Gguf(file) => file.bytes_in(half),
            Source::Random { stored, .. } if *stored == half => self.stored_bytes(),
            Source::Random { .. } => 0,
        }
    }

    /// Notes that a tensor is asked for.
    fn request(&mut self, name: &str) -> Result<(), LoadError> {
        if self.used.len() >= MOST_TENSORS {
            return Err(LoadError::Corrupt {
                file: "config.json".to_owned(),
                reason: format!("expected a model of at most {MOST_TENSORS} tensors, found more"),
            });
        }
        self.mark(name);
        Ok(())
    }

    /// Marks a tensor as used, and the tensor of its files that it is a part of.
    fn mark(&mut self, name: &str) {
        let own = match &self.source {
            Source::Gguf(_) => Gguf::whole(name),
            Source::Shards { shards, .. } => {
                let stored = shards.stored_name(name).filter(|stored| *stored != name);
                self.used.extend(stored.map(str::to_owned));
                name.to_owned()
            }
            Source::Random { .. } => name.to_owned(),
        };
        self.used.insert(own);
    }

    /// Counts a tensor that takes `transient` bytes of memory until it is stored, and `read` bytes of the
    /// file.
    fn received(&mut self, shape: &[usize], transient: usize, read: usize) {
        self.elements = self.elements.saturating_add(count(shape));
        self.memory.use_briefly(transient);
        if let (Some(watch), true) = (&mut self.watch, self.reads) {
            watch(read as u64);
        }
    }

    /// The stored shape of a tensor, `None` if it is not stored.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        match &self.source {
            // Packed codes have another shape than their matrix.
            Source::Shards { shards, .. } => {
                let is_packed = matches!(shards.dtype(name), Some(Dtype::U32 | Dtype::U8));
                shards.shape(name).filter(|_| !is_packed)
            }
            Source::Gguf(file) => file.shape(name),
            Source::Random { .. } => None,
        }
    }

    /// True if a tensor is stored, or as a share of another.
    pub(crate) fn stores(&self, name: &str) -> bool {
        match &self.source {
            Source::Shards { shards, .. } => shards.dtype(name).is_some(),
            _ => self.shape(name).is_some(),
        }
    }

    /// True if reading a linear layer's matrix of this shape succeeds, except for its values.
    pub(crate) fn has(&self, name: &str, shape: &[usize]) -> bool {
        match &self.source {
            Source::Random { .. } => true,
            Source::Gguf(file) => file.shape(name) == Some(shape),
            Source::Shards { shards, quantization } => {
                let quantization = quantization.as_ref();
                let matrix = quantization.map(|found| found.find(shards, name, shape, true));
                match matrix {
                    None | Some(Ok(None)) => shards.find_any(name, &[shape]).is_ok(),
                    Some(matrix) => matrix.is_ok(),
                }
            }
        }
    }

    /// Marks a tensor as used, so that it causes no warning if it is stored. An adapter of it is refused
    /// nevertheless.
    pub(crate) fn ignore(&mut self, name: &str) {
        if self.lora.as_ref().is_some_and(|lora| lora.rank_and_scale(name).is_some()) {
            return;
        }
        self.mark(name);
    }

    /// Number of elements that were requested.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// Names of stored tensors that were never requested, except known harmless ones.
    pub(crate) fn unused(&self) -> Vec<String> {
        let names: Vec<&String> = match &self.source {
            // A part of a quantized matrix is used if the matrix is.
            Source::Shards { shards, quantization: Some(_) } => {
                let is_used = |matrix: String| self.used.contains(&matrix);
                let is_part = |name: &str| Quantization::matrix(name).is_some_and(is_used);
                shards.names().filter(|name| !is_part(name)).collect()
            }
            Source::Shards { shards, .. } => shards.names().collect(),
            Source::Gguf(file) => file.names().collect(),
            Source::Random { .. } => Vec::new(),
        };
        names
            .into_iter()
            .filter(|name| !self.used.contains(*name))
            .filter(|name| !HARMLESS.iter().any(|end| name.ends_with(end)))
            .cloned()
            .collect()
    }
}

/// The dtype of weights of which `half` of `all` stored bytes are numbers of 16 bits.
fn of_stored(half: u64, all: u64) -> WeightDtype {
    match half >= LARGE && half > all / 2 {
        true => WeightDtype::Bf16,
        false => WeightDtype::F32,
    }
}

/// Number of elements.
fn count(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count: usize, n| count.saturating_mul(*n))
}
