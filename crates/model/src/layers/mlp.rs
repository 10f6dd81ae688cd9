//! The gated MLP.

use crate::LoadError;
use crate::layers::linear::{Matrix, fused};
use crate::weights::Weights;
use candle_core::{Result, Tensor};
use kernels::{Epilogue, Linear};

/// `down(silu(gate x) * up x)`, with gate and up in one matrix.
pub(crate) struct GatedMlp {
    gate_up: Linear,
    down: Linear,
}

impl GatedMlp {
    /// Loads gate and up `[m, d]` and down `[d, m]`.
    pub(crate) fn load(
        weights: &mut Weights,
        (gate, up, down): (Matrix, Matrix, Matrix),
    ) -> std::result::Result<Self, LoadError> {
        let (d, m) = (down.rows, gate.rows);
        let gate_up = fused(weights, d, &[gate, up], Epilogue::SiluGate)?;
        Ok(Self {
            gate_up,
            down: fused(weights, m, &[down], Epilogue::None)?,
        })
    }

    /// Applies the MLP to `x [r, d]`.
    pub(crate) fn product(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.gate_up.forward(x)?)
    }

    /// Applies the MLP to `x [r, d]` and adds `residual [r, d]`.
    pub(crate) fn forward(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.down.forward_add(&self.gate_up.forward(x)?, residual)
    }
}
