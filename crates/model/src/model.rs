//! A loaded model: its network and the facts about it.

use crate::arch::{self, Network, Pass};
use crate::inputs::Inputs;
use crate::pool::{KvPool, PoolShape};
use crate::profile::Clock;
use crate::{Checkpoint, ForwardError, LoadError, Memory};
use candle_core::{Device, Tensor};
use kernels::WeightDtype;
use step::{Attention, Readout};

/// What is known of a model besides its weights.
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
    /// MLP width `m`: of layers without experts, or of an expert if every layer has them.
    pub mlp_width: usize,
    /// The experts, where layers have them.
    pub experts: Option<ExpertInfo>,
    /// Tokens with a logit `v`.
    pub vocab_size: usize,
    /// Rows of the embedding table, at least `vocab_size`.
    pub embedding_size: usize,
    /// Positions the model was built for.
    pub max_positions: usize,
    /// The mask token.
    pub mask: u32,
    /// Tokens that end a text; a chat's end of turn is the tokenizer's to add.
    pub end: Vec<u32>,
    /// The LM head is the embedding table.
    pub tied: bool,
    /// Stored numbers, tied matrices counted once.
    pub parameters: usize,
    /// What matrices are kept and multiplied as.
    pub dtype: WeightDtype,
    /// What rows may see.
    pub attention: Attention,
    /// Where predictions are read.
    pub readout: Readout,
}

/// The experts of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertInfo {
    /// In a layer.
    pub count: usize,
    /// That each row goes through.
    pub chosen: usize,
    /// Numbers of one of a layer, over all layers that have experts.
    pub parameters: usize,
}

impl ModelInfo {
    /// Bytes of keys and values per position, all layers, f32.
    #[must_use]
    pub fn kv_bytes_per_position(&self) -> usize {
        2 * self.layers * self.groups * self.head_width * size_of::<f32>()
    }

    /// One line for people: family, parameters, geometry, memory, ids.
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
    /// Converts and packs the weights of the architecture that the configuration names.
    ///
    /// # Errors
    /// If the architecture or a setting is not supported, or a tensor is missing, has another
    /// shape or type, or holds a number that is not finite.
    pub fn load(mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        let (network, info) = arch::load(&checkpoint.config, &mut checkpoint.weights)?;
        let (info, warnings) = checkpoint.told(info);
        Ok(Self {
            network,
            info,
            memory: checkpoint.weights.memory,
            warnings,
        })
    }

    /// The facts about it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The memory that it takes, without KV pages.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// What was odd about the checkpoint and does not matter, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Logits `[tokens, v]`, row by row, of one sequence at positions 0, 1, .. under the model's
    /// own attention; rows are not shifted, whatever [`ModelInfo::readout`] says.
    ///
    /// # Errors
    /// If there is no token, or a token or the length is out of range.
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
