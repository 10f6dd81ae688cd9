//! The token embedding table.

use crate::LoadError;
use crate::memory::floats;
use crate::weights::Weights;
use candle_core::{Device, Result, Tensor};

/// `[tokens, d]`, f32.
pub(crate) struct Embedding(Tensor);

impl Embedding {
    /// Loads `{name}.weight [tokens, d]`.
    pub(crate) fn load(
        weights: &mut Weights,
        name: &str,
        (tokens, d): (usize, usize),
    ) -> std::result::Result<Self, LoadError> {
        let table = weights.tensor(&format!("{name}.weight"), &[tokens, d])?;
        weights.memory.keep(floats(tokens.saturating_mul(d)));
        // A survey reads no rows.
        let tokens = if weights.reads { tokens } else { 0 };
        let table = Tensor::from_vec(table, (tokens, d), &Device::Cpu)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Self(table))
    }

    /// Embeds `tokens [r]` into `[r, d]`.
    pub(crate) fn forward(&self, tokens: &[u32]) -> Result<Tensor> {
        let ids = Tensor::from_slice(tokens, tokens.len(), self.0.device())?;
        self.0.index_select(&ids, 0)
    }

    /// The table in row-major order.
    pub(crate) fn rows(&self) -> std::result::Result<Vec<f32>, LoadError> {
        let rows = self.0.flatten_all().and_then(|table| table.to_vec1());
        rows.map_err(|error| LoadError::Setup(error.to_string()))
    }
}
