//! A checkpoint: its configuration and its weights, opened but not loaded.

use crate::arch;
use crate::config::{DRAFTER, Keys};
use crate::files::Files;
use crate::gguf::{Gguf, TokenizerJson};
use crate::sharing::ExpertSharing;
use crate::weights::{DrafterFiles, Quantization, Weights};
use crate::{LoadError, Memory, ModelInfo, RowGate};
use kernels::{Counting, KvDtype, WeightDtype};
use safetensors::tensor::Dtype;

/// The configuration file's name.
const CONFIG: &str = "config.json";

/// An opened checkpoint.
pub struct Checkpoint {
    pub(crate) config: Keys,
    pub(crate) weights: Weights,
    /// A drafter that reads its states.
    pub(crate) drafter: Option<Box<DrafterFiles>>,
}

/// The result that [`crate::Model::load`] would have, without the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The model's info.
    pub info: ModelInfo,
    /// The memory that the model takes.
    pub memory: Memory,
}

impl Checkpoint {
    /// Opens the files of a Hugging Face folder: `config.json` and `model.safetensors`,
    /// `model.safetensors.index.json` with its shards, or the only safetensors file. A GGUF file is
    /// opened if it is named, or if it is the only one in a folder without safetensors; its metadata
    /// replaces `config.json`.
    ///
    /// # Errors
    /// If a file is missing, unreadable or corrupt, or the weights exist only as pickle files.
    pub fn open(files: &Files) -> Result<Self, LoadError> {
        if let Some(file) = files.gguf()? {
            let (gguf, config) = Gguf::open(files, &file)?;
            return Ok(Self { config, weights: Weights::gguf(gguf), drafter: None });
        }
        let config = Keys::parse(CONFIG, &files.open(CONFIG)?)?;
        let quantization = arch::supported(&config, files)?;
        let weights = Weights::open(files, quantization)?;
        Ok(Self { config, weights, drafter: None })
    }

    /// The quantization by the publisher, in words: method, bits, and the weights that share a scale, or the
    /// types of blocks in a GGUF file.
    pub fn quantization(&self) -> Option<String> {
        if let Some(file) = self.weights.as_gguf() {
            let types: Vec<&str> = file.block_types().into_iter().collect();
            return (!types.is_empty()).then(|| format!("GGUF, {}", types.join(", ")));
        }
        self.weights.quantization().map(|found| found.about.clone())
    }

    /// The tokenizer inside a GGUF file; `None` if there is none, or for other checkpoints.
    ///
    /// # Errors
    /// If the file has a tokenizer of an unknown kind.
    pub fn tokenizer(&self) -> Result<Option<TokenizerJson>, LoadError> {
        self.weights.as_gguf().map_or(Ok(None), Gguf::tokenizer)
    }

    /// Refuses the `config.json` of a model that this crate has no architecture for, or does not read. The
    /// weights need not be there.
    ///
    /// # Errors
    /// A missing or malformed file, an unsupported architecture or quantization.
    pub fn check_architecture(files: &Files) -> Result<(), LoadError> {
        arch::supported(&Keys::parse(CONFIG, &files.open(CONFIG)?)?, files).map(|_| ())
    }

    /// Sets the dtype in which matrices are stored and multiplied after loading; default f32.
    /// Norms and biases stay f32, on the CPU the embedding table as its file has it. [`WeightDtype::Blocks`]
    /// keeps matrices in the block types of a GGUF file, and a publisher's codes in those that have exactly
    /// their products with scales. For a checkpoint without both it is bf16 where most bytes are bf16, or 8-bit
    /// floats, 512 MiB or more, and else f32. On the CPU, matrices of F16 that are multiplied in f32 keep their
    /// 16 bits.
    #[must_use]
    pub fn with_dtype(mut self, dtype: WeightDtype) -> Self {
        self.weights.dtype = self.weights.resolved(dtype);
        self
    }

    /// The dtype to load with on a device if `dtype` is asked for. It is another one in a single case: large
    /// matrices in F16, which [`WeightDtype::Blocks`] would make f32, are bf16, because devices multiply f32
    /// without tensor cores.
    pub fn dtype_on_device(&self, dtype: WeightDtype) -> WeightDtype {
        match self.weights.resolved_on_device(dtype) == self.weights.resolved(dtype) {
            true => dtype,
            false => WeightDtype::Bf16,
        }
    }

    /// Sets the number format of keys and values; default f32, on a device that of queries, which has these
    /// two formats and int8.
    #[must_use]
    pub fn with_kv_dtype(mut self, dtype: KvDtype) -> Self {
        self.weights.kv_dtype = Some(dtype);
        self
    }

    /// Without [`Self::with_kv_dtype`], stores keys and values on the CPU in bf16 beside matrices that are not
    /// f32, as a device does.
    #[must_use]
    pub fn with_kv_of_matrices(mut self) -> Self {
        self.weights.kv_of_matrices = true;
        self
    }

    /// Sets expert sharing: the rows of one block of positions of a sequence choose from a common
    /// pool of experts. The pool of one sequence does not affect other sequences.
    #[must_use]
    pub fn with_expert_sharing(mut self, sharing: Option<ExpertSharing>) -> Self {
        self.weights.sharing = sharing;
        self
    }

    /// Sets the number of tokens that the tokenizer has, counted up to its largest id. Checkpoints of
    /// Qwen and others have more rows than that: no logit is computed for the ids of such rows, and
    /// none is ever produced. Canvas models keep all ids, because their noise is drawn from them.
    #[must_use]
    pub fn with_vocabulary(mut self, tokens: usize) -> Self {
        self.weights.vocabulary = Some(tokens);
        self
    }

    /// Limits sequences to this many positions, and rotary tables with them; `None` = the model's context.
    pub fn limit(&mut self, positions: Option<usize>) {
        self.weights.positions = positions;
    }

    /// Adds a LoRA adapter of PEFT, `adapter_config.json` and `adapter_model.safetensors`: while they are
    /// read, matrices become `W + s B A`, computed in f32 before they are stored in their dtype; s is
    /// alpha / r, or alpha / √r with `use_rslora`. With a `gate`, or a `mask_token_id` in its
    /// configuration, the products `s B A x` are added in some rows instead; an adapter for masks makes
    /// causal weights that predict the next token read masks.
    ///
    /// # Errors
    /// A missing or malformed file, another kind of adapter, a tensor without its matrix in the
    /// checkpoint, a GGUF file as the checkpoint of an adapter for all rows. Loading refuses an adapter of a
    /// matrix that the model does not use, and one for masks or open blocks of weights without them.
    pub fn with_lora(mut self, files: &Files, gate: Option<RowGate>) -> Result<Self, LoadError> {
        self.weights.adapt(files, gate)?;
        Ok(self)
    }

    /// Returns true if the folder contains a DFlash drafter: its `config.json` has the key `dflash_config`.
    pub fn is_drafter(files: &Files) -> bool {
        let config = files.open(CONFIG).and_then(|text| Keys::parse(CONFIG, &text));
        config.is_ok_and(|config| config.get(DRAFTER).is_some())
    }

    /// Adds a DFlash drafter: layers that read states of this model's layers and propose a block of tokens.
    ///
    /// # Errors
    /// A missing or malformed file. Loading refuses a drafter of other layers, width or vocabulary,
    /// and a model that is not causal.
    pub fn with_drafter(mut self, files: &Files) -> Result<Self, LoadError> {
        self.drafter = Some(Box::new(DrafterFiles::open(files, CONFIG)?));
        Ok(self)
    }

    /// Says that weights with full attention were fine-tuned to attend block-causally after the prompt,
    /// in blocks of this length ([`step::Attention::BlocksAfterPrompt`]); `None` = as configured. Loading
    /// refuses other weights.
    #[must_use]
    pub fn with_blocks_after_prompt(mut self, length: Option<u32>) -> Self {
        self.weights.prompt_blocks = length;
        self
    }

    /// Says that block-causal weights were fine-tuned for strictly causal rows that predict the next token
    /// (I-DLM, arXiv 2604.11035). Loading refuses weights with another attention.
    #[must_use]
    pub fn with_next_tokens(mut self, next_tokens: bool) -> Self {
        self.weights.next_tokens = next_tokens;
        self
    }

    /// Sets a callback that loading calls after each tensor with the number of file bytes read for
    /// it; the sum is at most [`Self::stored_bytes`].
    #[must_use]
    pub fn with_watch(mut self, watch: impl FnMut(u64) + Send + 'static) -> Self {
        self.weights.watch = Some(Box::new(watch));
        self
    }

    /// Bytes of all tensors in the files.
    pub fn stored_bytes(&self) -> u64 {
        let drafter = self.drafter.as_ref().map_or(0, |files| files.weights.stored_bytes());
        self.weights.stored_bytes().saturating_add(drafter)
    }

    /// Number of parameters that were loaded.
    fn parameters(&self) -> usize {
        let drafter = self.drafter.as_ref().map_or(0, |files| files.weights.elements());
        self.weights.elements().saturating_add(drafter)
    }

    /// Checks configuration and headers as loading with matrices in `dtype` does, but reads no
    /// weights.
    ///
    /// # Errors
    /// As [`crate::Model::load`], except for numbers that are not finite.
    pub fn survey(&mut self, dtype: WeightDtype) -> Result<Survey, LoadError> {
        self.count(dtype, |checkpoint| {
            let Self { config, weights, drafter } = checkpoint;
            let (_, info) =
                arch::load(&Counting::default(), config, weights, drafter.as_deref_mut())?;
            let parameters = checkpoint.parameters();
            let info = ModelInfo { parameters, ..info };
            Ok(Survey { info, memory: checkpoint.weights.memory })
        })
    }

    /// Runs `load` on the checkpoint with matrices in `dtype`; tensors are checked and not read.
    pub(crate) fn count<T>(&mut self, dtype: WeightDtype, load: impl FnOnce(&mut Self) -> T) -> T {
        let dtype = self.weights.resolved(dtype);
        let chosen = std::mem::replace(&mut self.weights.dtype, dtype);
        self.weights.restart(false);
        let loaded = load(self);
        self.weights.restart(true);
        self.weights.dtype = chosen;
        loaded
    }

    /// Completes `info` after all tensors were loaded. Also returns warnings about unused tensors,
    /// one line each.
    pub(crate) fn finish(&self, info: ModelInfo) -> (ModelInfo, Vec<String>) {
        let (vision, unused): (Vec<String>, Vec<String>) = self
            .weights
            .unused()
            .into_iter()
            .partition(|name| info.canvas.is_some() && name.contains("vision"));
        let unused = unused.iter();
        let warnings = unused.map(|name| format!("{name}: stored but not used"));
        let left_out = (!vision.is_empty()).then(|| {
            let count = vision.len();
            format!("{count} tensors of the vision tower are left out: this server reads text only")
        });
        let parameters = self.parameters();
        let warnings = warnings.chain(left_out).collect();
        (ModelInfo { parameters, ..info }, warnings)
    }

    /// A checkpoint of which only this `config.json` is here, to be surveyed. The weights count as stored
    /// in the dtype that the configuration names (`dtype` or `torch_dtype`), f32 without one; quantized ones
    /// that are not kept in blocks count as bf16.
    ///
    /// # Errors
    /// As [`Self::survey`].
    pub fn planned(config: &str) -> Result<Self, LoadError> {
        Self::planned_in(&Files::memory([(CONFIG, config.as_bytes().to_vec())]))
    }

    /// As [`Self::planned`], of files that contain `config.json` and perhaps one of an older tool's quantization.
    ///
    /// # Errors
    /// As [`Self::survey`]; a missing file.
    pub fn planned_in(files: &Files) -> Result<Self, LoadError> {
        let config = Keys::parse(CONFIG, &files.open(CONFIG)?)?;
        let mut planned = Self { config, weights: Weights::random(0), drafter: None };
        let dtype = planned.config.get("dtype").or_else(|| planned.config.get("torch_dtype"));
        let quantization = Quantization::read(&planned.config, files)?;
        let is_expanded = quantization.as_ref().is_some_and(|found| !found.is_kept());
        let dtype = match dtype.and_then(|dtype| dtype.as_str()) {
            _ if is_expanded => Dtype::BF16,
            Some("bfloat16") => Dtype::BF16,
            Some("float16") => Dtype::F16,
            _ => Dtype::F32,
        };
        let parameters = planned.survey(WeightDtype::F32)?.info.parameters as u64;
        planned.weights.suppose(parameters, dtype, quantization);
        Ok(planned)
    }

    /// A checkpoint with the given `config.json` and random weights, for measuring speed only.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub fn synthetic(config: &str, seed: u64) -> Result<Self, LoadError> {
        let config = Keys::parse(CONFIG, config.as_bytes())?;
        Ok(Self { config, weights: Weights::random(seed), drafter: None })
    }
}
