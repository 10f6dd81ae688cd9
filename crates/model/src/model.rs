//! A loaded model and its info.

use crate::arch::{self, Network, Pass};
use crate::inputs::Inputs;
use crate::pool::{KvPool, PoolShape};
use crate::profile::Clock;
use crate::{Checkpoint, ForwardError, LoadError, Memory};
use candle_core::{Device, Tensor};
use kernels::WeightDtype;
use step::{Attention, Readout};

/// The properties of a model other than its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Name of the architecture family.
    pub family: &'static str,
    /// Transformer blocks.
    pub layers: usize,
    /// Model width `d`.
    pub width: usize,
    /// Query heads `h`.
    pub heads: usize,
    /// Key/value heads `g`.
    pub groups: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// MLP width `m`: of layers without experts, or of an expert if every layer has experts.
    pub mlp_width: usize,
    /// The experts, if any layer has them.
    pub experts: Option<ExpertInfo>,
    /// Number of tokens with a logit, `v`.
    pub vocab_size: usize,
    /// Rows of the embedding table, at least `vocab_size`.
    pub embedding_size: usize,
    /// Maximum number of positions.
    pub max_positions: usize,
    /// The mask token.
    pub mask: u32,
    /// Tokens that end a text. The tokenizer adds the token that ends a chat turn.
    pub end: Vec<u32>,
    /// Whether the LM head shares the embedding table.
    pub tied: bool,
    /// Number of parameters; tied matrices count once.
    pub parameters: usize,
    /// Dtype in which matrices are stored and multiplied.
    pub dtype: WeightDtype,
    /// The attention mask.
    pub attention: Attention,
    /// The row at which the prediction of a position is read.
    pub readout: Readout,
}

/// The experts of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertInfo {
    /// Number of experts in a layer.
    pub count: usize,
    /// Number of experts chosen for each row.
    pub chosen: usize,
    /// Parameters of one expert per layer, summed over all layers with experts.
    pub parameters: usize,
}

impl ModelInfo {
    /// Bytes of keys and values per position in f32, all layers together.
    #[must_use]
    pub fn kv_bytes_per_position(&self) -> usize {
        2 * self.layers * self.groups * self.head_width * size_of::<f32>()
    }

    /// A one-line description: family, parameters, geometry, KV bytes, token ids.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{}, {:.2} M parameters: {} layers of width {}, {} heads ({} key/value) of {}, \
             MLP {}; vocabulary {}, {} positions, {} KV bytes each; mask {}, end {:?}",
            self.family,
            self.parameters as f64 / 1e6,
            self.layers,
            self.width,
            self.heads,
            self.groups,
            self.head_width,
            self.mlp_width,
            self.vocab_size,
            self.max_positions,
            self.kv_bytes_per_position(),
            self.mask,
            self.end
        )
    }
}

/// A model ready to run.
pub struct Model {
    pub(crate) network: Box<dyn Network>,
    info: ModelInfo,
    memory: Memory,
    warnings: Vec<String>,
}

impl Model {
    /// Loads the architecture named in the configuration; converts and packs its weights.
    ///
    /// # Errors
    /// If the architecture or a setting is not supported, or a tensor is missing, has a wrong shape
    /// or type, or contains a number that is not finite.
    pub fn load(mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        let (network, info) = arch::load(&checkpoint.config, &mut checkpoint.weights)?;
        let (info, warnings) = checkpoint.finish(info);
        Ok(Self {
            network,
            info,
            memory: checkpoint.weights.memory,
            warnings,
        })
    }

    /// The model's info.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The memory that the model takes, without KV pages.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Warnings about the checkpoint, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Logits `[tokens, v]` in row-major order of one sequence at positions 0, 1, .. with the
    /// model's own attention. Rows are not shifted, independent of [`ModelInfo::readout`].
    ///
    /// # Errors
    /// If `tokens` is empty, or a token or the length is out of range.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, ForwardError> {
        let most = self.info.max_positions;
        if tokens.is_empty() || tokens.len() > most {
            return Err(ForwardError(format!(
                "{} tokens, expected 1..={most}",
                tokens.len()
            )));
        }
        let size = self.info.embedding_size;
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= size) {
            return Err(ForwardError(format!("token {token} of {size}")));
        }
        self.alone(tokens)
            .map_err(|error| ForwardError(error.to_string()))
    }

    fn alone(&self, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
        let pool = self.pool(tokens.len(), 1)?;
        let inputs = Inputs::alone(tokens, self.info.attention);
        let pass = Pass {
            inputs: &inputs,
            pool: &pool,
        };
        let mut clock = Clock::start(None);
        let hidden = self.network.hidden(&pass, &mut clock)?;
        let logits: Tensor = self.network.logits(&hidden, &mut clock)?;
        logits.flatten_all()?.to_vec1()
    }

    pub(crate) fn pool(&self, page_size: usize, pages: usize) -> candle_core::Result<KvPool> {
        let shape = PoolShape {
            layers: self.info.layers,
            groups: self.info.groups,
            head_width: self.info.head_width,
            page_size,
            pages,
        };
        KvPool::new(shape, &Device::Cpu)
    }
}
