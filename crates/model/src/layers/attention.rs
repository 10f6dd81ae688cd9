//! Attention over the paged KV cache, with rotary positions.

use crate::LoadError;
use crate::layers::linear::{Matrix, fused};
use crate::memory::floats;
use crate::network::Pass;
use crate::pool::Columns;
use crate::profile::{Clock, Stage};
use crate::weights::Weights;
use candle_core::{Result, Tensor};
use kernels::{Epilogue, HeadNorm, Linear, PagedAttention, Rope, RopeTable};
use std::sync::Arc;

/// Sizes shared by all layers.
#[derive(Clone)]
pub(crate) struct AttentionShape {
    /// Query heads `h`.
    pub(crate) heads: usize,
    /// Key/value heads `g`, a divisor of the query heads.
    pub(crate) groups: usize,
    /// Head width `c`.
    pub(crate) head_width: usize,
    /// Model width `d`.
    pub(crate) width: usize,
    /// Rotary angles of a head.
    pub(crate) rope: Arc<RopeTable>,
}

/// The attention of one layer: query, key and value in one matrix, and the output matrix.
pub(crate) struct Attention {
    shape: AttentionShape,
    qkv: Linear,
    out: Linear,
    /// Norm weights of all query and key heads, one after another, and epsilon.
    head_norms: Option<(Vec<f32>, f32)>,
    layer: usize,
}

impl Attention {
    /// Loads query `[h c, d]`, key and value `[g c, d]` (or one matrix with all three) and output
    /// `[d, h c]`.
    pub(crate) fn load(
        weights: &mut Weights,
        shape: &AttentionShape,
        layer: usize,
        (qkv, out): (&[Matrix], Matrix),
    ) -> std::result::Result<Self, LoadError> {
        let inner = shape.heads * shape.head_width;
        Ok(Self {
            qkv: fused(weights, shape.width, qkv, Epilogue::None)?,
            out: fused(weights, inner, &[out], Epilogue::None)?,
            shape: shape.clone(),
            head_norms: None,
            layer,
        })
    }

    /// Adds RMS norms `[c]` of the query heads and of the key heads.
    pub(crate) fn with_head_norms(
        mut self,
        weights: &mut Weights,
        [query, key]: &[String; 2],
        eps: f32,
    ) -> std::result::Result<Self, LoadError> {
        let AttentionShape {
            heads,
            groups,
            head_width,
            ..
        } = self.shape;
        let mut all = Vec::new();
        for (name, count) in [(query, heads), (key, groups)] {
            let one = weights.tensor(&format!("{name}.weight"), &[head_width])?;
            all.extend(one.repeat(count));
        }
        weights.memory.keep(floats((heads + groups) * head_width));
        self.head_norms = Some((all, eps));
        Ok(self)
    }

    /// Writes the rows' keys and values, then applies attention to `x [r, d]` and adds
    /// `residual [r, d]`. Returns `[r, d]`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: &Tensor,
        Pass { inputs, pool }: &Pass<'_>,
        clock: &mut Clock<'_>,
    ) -> Result<Tensor> {
        let AttentionShape {
            heads,
            groups,
            head_width,
            rope,
            ..
        } = &self.shape;
        let qkv = self.qkv.forward(x)?;
        clock.lap(Stage::Linear);
        if let Some((weights, eps)) = &self.head_norms {
            qkv.inplace_op1(&HeadNorm {
                weights,
                width: *head_width,
                eps: *eps,
            })?;
            clock.lap(Stage::Norm);
        }
        qkv.inplace_op1(&Rope {
            table: rope,
            positions: &inputs.positions,
            heads: heads + groups,
            width: *head_width,
        })?;
        clock.lap(Stage::Rope);
        let (keys, values) = (heads * head_width, (heads + groups) * head_width);
        pool.write(self.layer, &qkv, &inputs.slots, Columns { keys, values })?;
        clock.lap(Stage::Write);
        let op = PagedAttention {
            segments: &inputs.segments,
            pages: &inputs.pages,
            visible: &inputs.visible,
            heads: *heads,
            scale: 1.0 / (*head_width as f32).sqrt(),
        };
        let (k, v) = pool.layer(self.layer);
        let attended = qkv.apply_op3_no_bwd(k, v, &op)?;
        clock.lap(Stage::Attention);
        let out = self.out.forward_add(&attended, residual)?;
        clock.lap(Stage::Linear);
        Ok(out)
    }
}
