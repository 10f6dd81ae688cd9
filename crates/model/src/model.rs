//! A loaded model and its info.

use crate::arch;
use crate::inputs::Inputs;
use crate::network::{Network, Pass};
use crate::pool::{KvPool, PoolShape};
use crate::profile::Clock;
use crate::{Checkpoint, ForwardError, LoadError, Memory, ModelInfo};
use candle_core::{Device, Tensor};

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
