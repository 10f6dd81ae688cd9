//! A checkpoint: its configuration and its weights, opened but not yet converted.

use crate::arch;
use crate::config::Keys;
use crate::files::Files;
use crate::gguf::Gguf;
use crate::layers::ExpertSharing;
use crate::weights::Weights;
use crate::{LoadError, Memory, ModelInfo};
use kernels::WeightDtype;

/// The configuration file's name.
const CONFIG: &str = "config.json";

/// An opened checkpoint.
pub struct Checkpoint {
    pub(crate) config: Keys,
    pub(crate) weights: Weights,
}

/// What [`crate::Model::load`] would yield.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The facts about the model.
    pub info: ModelInfo,
    /// The memory that it takes.
    pub memory: Memory,
}

impl Checkpoint {
    /// Opens the files of a Hugging Face folder: `config.json` and `model.safetensors`, or
    /// `model.safetensors.index.json` with its shards. A GGUF file, named or the only one of a
    /// folder without safetensors, says itself what it holds.
    ///
    /// # Errors
    /// If a file is missing, unreadable or corrupt, or only pickled weights are there.
    pub fn open(files: &Files) -> Result<Self, LoadError> {
        if let Some(file) = files.gguf()? {
            let (gguf, config) = Gguf::open(files, &file)?;
            return Ok(Self {
                config,
                weights: Weights::gguf(gguf),
            });
        }
        let config = Keys::parse(CONFIG, &files.open(CONFIG)?)?;
        Ok(Self {
            config,
            weights: Weights::open(files)?,
        })
    }

    /// The same checkpoint, its matrices kept and multiplied as `dtype` when it is loaded (f32
    /// unless said otherwise). Embedding table, norms and biases stay f32.
    #[must_use]
    pub fn with_dtype(mut self, dtype: WeightDtype) -> Self {
        self.weights.dtype = dtype;
        self
    }

    /// The same checkpoint, the rows of a block of positions of a sequence choosing among a pool of
    /// experts that they agree on. Nothing of it reaches another sequence.
    #[must_use]
    pub fn with_expert_sharing(mut self, sharing: Option<ExpertSharing>) -> Self {
        self.weights.sharing = sharing;
        self
    }

    /// The same checkpoint, `watch` told how many bytes of its files were read whenever a tensor
    /// was while it is loaded; together at most [`Self::stored_bytes`].
    #[must_use]
    pub fn with_watch(mut self, watch: impl FnMut(u64) + Send + 'static) -> Self {
        self.weights.watch = Some(Box::new(watch));
        self
    }

    /// Bytes of all tensors in the files.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.weights.stored_bytes()
    }

    /// Goes through configuration and headers as loading does with matrices kept as `dtype`, and
    /// reads no weight.
    ///
    /// # Errors
    /// As [`crate::Model::load`], but for numbers that are not finite.
    pub fn survey(&mut self, dtype: WeightDtype) -> Result<Survey, LoadError> {
        let chosen = std::mem::replace(&mut self.weights.dtype, dtype);
        self.weights.restart(false);
        let loaded = arch::load(&self.config, &mut self.weights);
        let survey = loaded.map(|(_, info)| Survey {
            info: ModelInfo {
                parameters: self.weights.elements(),
                ..info
            },
            memory: self.weights.memory,
        });
        self.weights.restart(true);
        self.weights.dtype = chosen;
        survey
    }

    /// The facts about a model whose tensors were all taken, and what was odd about the rest, one
    /// line each.
    pub(crate) fn told(&self, info: ModelInfo) -> (ModelInfo, Vec<String>) {
        let unused = self.weights.unused();
        let unused = unused.iter();
        let warnings = unused.map(|name| format!("{name}: stored but not used"));
        let parameters = self.weights.elements();
        (ModelInfo { parameters, ..info }, warnings.collect())
    }

    /// A checkpoint with the given `config.json` and random weights: right for measuring
    /// speed, and for nothing else.
    ///
    /// # Errors
    /// If the text is no JSON object.
    pub fn synthetic(config: &str, seed: u64) -> Result<Self, LoadError> {
        let config = Keys::parse(CONFIG, config.as_bytes())?;
        Ok(Self {
            config,
            weights: Weights::random(seed),
        })
    }
}
