//! Tensors by name: out of safetensors or GGUF files, or random for benchmarks.

use crate::LoadError;
use crate::files::{Bytes, Files};
use crate::gguf::Gguf;
use crate::layers::ExpertSharing;
use crate::memory::{Memory, floats};
use kernels::WeightDtype;
use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use std::collections::{BTreeMap, BTreeSet};

/// The only weights file of a small checkpoint.
const SINGLE: &str = "model.safetensors";
/// Names the shards of a large one.
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of the length in front of a safetensors header.
const LENGTH_BYTES: usize = 8;
/// What pickled checkpoints are called.
const PICKLES: [&str; 3] = [
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "consolidated.00.pth",
];
/// Ends of names of tensors that nothing needs: buffers that old exports stored.
const HARMLESS: [&str; 3] = [
    "rotary_emb.inv_freq",
    "rotary_emb.sin_cached",
    "rope_freqs.weight",
];

/// All tensors of a checkpoint.
pub(crate) struct Weights {
    source: Source,
    /// Names asked for so far.
    used: BTreeSet<String>,
    /// Elements handed out so far.
    elements: usize,
    /// Whether tensors are read; if not, they are looked up, checked and handed out empty.
    pub(crate) reads: bool,
    /// What was taken for what was handed out so far.
    pub(crate) memory: Memory,
    /// Told how many bytes of the files were read, tensor by tensor.
    pub(crate) watch: Option<Watch>,
    /// What matrices are kept as.
    pub(crate) dtype: WeightDtype,
    /// How rows of a block narrow their choice of experts.
    pub(crate) sharing: Option<ExpertSharing>,
}

/// Follows the bytes read so far.
pub(crate) type Watch = Box<dyn FnMut(u64) + Send>;

enum Source {
    Shards {
        shards: Vec<Shard>,
        /// Tensor name to shard.
        homes: BTreeMap<String, usize>,
    },
    Gguf(Gguf),
    Random {
        seed: u64,
    },
}

/// One safetensors file.
struct Shard {
    name: String,
    bytes: Bytes,
    metadata: Metadata,
    /// Where the tensors' bytes start.
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
        Ok(Self {
            name: name.to_owned(),
            bytes,
            metadata,
            start: LENGTH_BYTES + header,
        })
    }
}

impl Weights {
    /// The weights of a checkpoint.
    pub(crate) fn open(files: &Files) -> Result<Self, LoadError> {
        if files.contains(SINGLE) {
            return Self::open_single(files, SINGLE);
        }
        if files.contains(INDEX) {
            return Self::open_sharded(files);
        }
        if let Some(pickle) = PICKLES.into_iter().find(|name| files.contains(name)) {
            return Err(LoadError::Pickle {
                file: pickle.to_owned(),
            });
        }
        let file = format!("{SINGLE} or {INDEX}");
        Err(LoadError::MissingFile {
            file,
            place: files.place(),
        })
    }

    /// The tensors of a GGUF file.
    pub(crate) fn gguf(file: Gguf) -> Self {
        Self::new(Source::Gguf(file))
    }

    /// Whether tensors have llama.cpp's names.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.source, Source::Gguf(_))
    }

    /// The tensors of one file.
    pub(crate) fn open_single(files: &Files, name: &str) -> Result<Self, LoadError> {
        let shard = Shard::open(files, name)?;
        let names = shard.metadata.tensors().into_keys();
        let homes = names.map(|name| (name, 0)).collect();
        Ok(Self::new(Source::Shards {
            shards: vec![shard],
            homes,
        }))
    }

    fn open_sharded(files: &Files) -> Result<Self, LoadError> {
        let index: serde_json::Value =
            serde_json::from_slice(&files.open(INDEX)?).map_err(|error| LoadError::Corrupt {
                file: INDEX.to_owned(),
                reason: error.to_string(),
            })?;
        let unfit = |found: &serde_json::Value| LoadError::Key {
            file: INDEX.to_owned(),
            key: "weight_map".to_owned(),
            expected: "an object from tensor names to file names".to_owned(),
            found: if found.is_null() {
                "nothing".to_owned()
            } else {
                found.to_string()
            },
        };
        let map = index["weight_map"]
            .as_object()
            .ok_or_else(|| unfit(&index["weight_map"]))?;
        let (mut shards, mut homes) = (Vec::<Shard>::new(), BTreeMap::new());
        for (tensor, file) in map {
            let file = file.as_str().ok_or_else(|| unfit(file))?;
            if !is_plain_name(file) {
                let shard = file.to_owned();
                return Err(LoadError::ShardOutside {
                    file: INDEX.to_owned(),
                    shard,
                });
            }
            let home = match shards.iter().position(|shard| shard.name == file) {
                Some(home) => home,
                None => {
                    shards.push(Shard::open(files, file)?);
                    shards.len() - 1
                }
            };
            homes.insert(tensor.clone(), home);
        }
        Ok(Self::new(Source::Shards { shards, homes }))
    }

    /// Random weights of any shape: matrices of variance 1 / columns, vectors of ones. What a
    /// name yields is a function of the seed and the name.
    pub(crate) fn random(seed: u64) -> Self {
        Self::new(Source::Random { seed })
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
            sharing: None,
        }
    }

    /// Forgets what was asked for; from now on tensors are read, or checked alone.
    pub(crate) fn restart(&mut self, reads: bool) {
        self.used.clear();
        self.elements = 0;
        self.memory = Memory::default();
        self.reads = reads;
    }

    /// Bytes of all tensors in the files.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.source {
            Source::Shards { shards, .. } => {
                let bytes = shards.iter().map(|shard| shard.bytes.len() - shard.start);
                bytes.map(|bytes| bytes as u64).sum()
            }
            Source::Gguf(file) => file.stored_bytes(),
            Source::Random { .. } => 0,
        }
    }

    /// The elements of a tensor in row-major order.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let mut values = Vec::new();
        self.append(name, shape, &mut values)?;
        Ok(values)
    }

    /// Appends the elements of a tensor in row-major order.
    pub(crate) fn append(
        &mut self,
        name: &str,
        shape: &[usize],
        to: &mut Vec<f32>,
    ) -> Result<(), LoadError> {
        self.used.insert(name.to_owned());
        let count = shape
            .iter()
            .fold(1, |count: usize, n| count.saturating_mul(*n));
        let read = match &self.source {
            Source::Random { seed } => {
                if self.reads {
                    to.append(&mut random(*seed, name, shape));
                }
                0
            }
            Source::Gguf(file) => file.append((name, shape), self.reads, to)?,
            Source::Shards { shards, homes } => {
                let tensor = find(shards, homes, name, shape)?;
                if self.reads {
                    tensor.read(name, to)?;
                }
                tensor.bytes.len()
            }
        };
        self.elements = self.elements.saturating_add(count);
        self.memory.pass(floats(count));
        if let (Some(watch), true) = (&mut self.watch, self.reads) {
            watch(read as u64);
        }
        Ok(())
    }

    /// The shape that a tensor is stored with, `None` if it is not stored.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        match &self.source {
            Source::Shards { shards, homes } => {
                let info = shards[*homes.get(name)?].metadata.info(name)?;
                Some(&info.shape)
            }
            Source::Gguf(file) => file.shape(name),
            Source::Random { .. } => None,
        }
    }

    /// Takes note that a tensor may be stored although it is not needed.
    pub(crate) fn ignore(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// Elements handed out so far.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// Names of tensors that were stored and never asked for, known harmless ones left out.
    pub(crate) fn unused(&self) -> Vec<String> {
        let names: Vec<&String> = match &self.source {
            Source::Shards { homes, .. } => homes.keys().collect(),
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

/// Whether a file name stays inside its folder.
fn is_plain_name(file: &str) -> bool {
    !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\\', '\0', ':'])
}

/// A tensor in a file, of the shape asked for and of a type that is read.
struct Stored<'a> {
    shard: &'a Shard,
    /// Where it lies in the file.
    bytes: std::ops::Range<usize>,
    dtype: Dtype,
}

fn find<'a>(
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
        return Err(missing(only.map_or(INDEX, |shard| &shard.name)));
    };
    let shard = &shards[home];
    let info = shard
        .metadata
        .info(name)
        .ok_or_else(|| missing(&shard.name))?;
    let (file, tensor) = (shard.name.clone(), name.to_owned());
    if info.shape != shape {
        let (expected, found) = (shape.to_vec(), info.shape.clone());
        return Err(LoadError::Shape {
            file,
            tensor,
            expected,
            found,
        });
    }
    if !matches!(info.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
        return Err(LoadError::Dtype {
            file,
            tensor,
            found: format!("{:?}", info.dtype),
        });
    }
    let (from, to) = info.data_offsets;
    Ok(Stored {
        shard,
        bytes: shard.start + from..shard.start + to,
        dtype: info.dtype,
    })
}

impl Stored<'_> {
    /// Appends the elements. The file's pages are given back, so that a loaded tensor does not lie
    /// in memory twice.
    fn read(&self, name: &str, to: &mut Vec<f32>) -> Result<(), LoadError> {
        let part = self.shard.bytes.part(self.bytes.clone());
        let bytes = &*part.map_err(|error| LoadError::Unreadable {
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

fn random(seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let &[_, columns] = shape else {
        return vec![1.0; count];
    };
    // FNV-1a over the name, then xorshift64.
    let mut state = name
        .bytes()
        .fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
        | 1;
    // A uniform variable in -1..1 has variance 1/3.
    let scale = (3.0 / columns as f32).sqrt();
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
        })
        .collect()
}

/// Of a safetensors file that ends before its tensors do: the tensor that reaches furthest, the
/// length the file should have, and the length it has.
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
