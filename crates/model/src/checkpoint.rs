//! A checkpoint: its configuration and its weights, opened but not yet converted.

use crate::LoadError;
use crate::config::Keys;
use crate::files::Files;
use crate::weights::Weights;
use kernels::WeightDtype;

/// The configuration file's name.
const CONFIG: &str = "config.json";

/// An opened checkpoint.
pub struct Checkpoint {
    pub(crate) config: Keys,
    pub(crate) weights: Weights,
}

impl Checkpoint {
    /// Opens the files of a Hugging Face folder: `config.json` and `model.safetensors`, or
    /// `model.safetensors.index.json` with its shards.
    ///
    /// # Errors
    /// If a file is missing, unreadable or corrupt, or only pickled weights are there.
    pub fn open(files: &Files) -> Result<Self, LoadError> {
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
