//! RMS normalisation with a weight.

use crate::LoadError;
use crate::memory::floats;
use crate::weights::Weights;
use candle_core::{Device, Result, Tensor};

/// `x / sqrt(mean(x^2) + eps) * weight`.
pub(crate) struct RmsNorm {
    weight: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// Loads `{name}.weight [d]`.
    pub(crate) fn load(
        weights: &mut Weights,
        name: &str,
        d: usize,
        eps: f32,
    ) -> std::result::Result<Self, LoadError> {
        let weight = weights.tensor(&format!("{name}.weight"), &[d])?;
        weights.memory.keep(floats(d));
        let held = weight.len();
        let weight = Tensor::from_vec(weight, held, &Device::Cpu)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Self { weight, eps })
    }

    /// Normalises the rows of `x [r, d]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernels::rms_norm(x, &self.weight, self.eps)
    }
}
