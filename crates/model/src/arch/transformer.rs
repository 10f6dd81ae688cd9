//! The pre-norm transformer: the forward pass that all families share.

use crate::layers::{Attention, Embedding, Experts, GatedMlp, RmsNorm};
use crate::network::{Network, Pass};
use crate::profile::{Clock, Stage};
use candle_core::{Result, Tensor};
use kernels::Linear;

/// The MLP of a layer.
pub(super) enum Mlp {
    /// One MLP for all rows.
    Dense(Box<GatedMlp>),
    /// A mixture of experts.
    Experts(Box<Experts>),
}

/// One layer.
pub(super) struct Block {
    pub(super) attention_norm: RmsNorm,
    pub(super) attention: Attention,
    pub(super) mlp_norm: RmsNorm,
    pub(super) mlp: Mlp,
}

/// Embedding, layers, final norm, LM head.
pub(super) struct Transformer {
    pub(super) embedding: Embedding,
    pub(super) blocks: Vec<Block>,
    pub(super) norm: RmsNorm,
    pub(super) head: Linear,
}

impl Network for Transformer {
    fn hidden(&self, pass: &Pass<'_>, clock: &mut Clock<'_>) -> Result<Tensor> {
        let mut x = self.embedding.forward(&pass.inputs.tokens)?;
        clock.lap(Stage::Embedding);
        for block in &self.blocks {
            let normed = block.attention_norm.forward(&x)?;
            clock.lap(Stage::Norm);
            x = block.attention.forward(&normed, &x, pass, clock)?;
            let normed = block.mlp_norm.forward(&x)?;
            clock.lap(Stage::Norm);
            x = match &block.mlp {
                Mlp::Dense(mlp) => mlp.forward(&normed, &x)?,
                Mlp::Experts(experts) => experts.forward(&normed, &x, pass.inputs)?,
            };
            clock.lap(Stage::Linear);
        }
        Ok(x)
    }

    fn logits(&self, hidden: &Tensor, clock: &mut Clock<'_>) -> Result<Tensor> {
        let normed = self.norm.forward(hidden)?;
        clock.lap(Stage::Norm);
        let logits = self.head.forward(&normed)?;
        clock.lap(Stage::Head);
        Ok(logits)
    }
}
