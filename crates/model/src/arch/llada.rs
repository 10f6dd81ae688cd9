//! LLaDA: a pre-norm transformer of the OLMo lineage with full attention.

use super::{Network, Pass};
use crate::config::{Keys, LladaConfig};
use crate::layers::{Attention, AttentionShape, Embedding, GatedMlp, Head, Matrix, RmsNorm, head};
use crate::profile::{Clock, Part};
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use candle_core::{Result, Tensor};
use kernels::{Linear, RopeTable};
use std::sync::Arc;

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
}

pub(super) struct Llada {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
}

impl Network for Llada {
    fn hidden(&self, pass: &Pass<'_>, clock: &mut Clock<'_>) -> Result<Tensor> {
        let mut x = self.embedding.forward(&pass.inputs.tokens)?;
        clock.lap(Part::Embedding);
        for block in &self.blocks {
            let normed = block.attention_norm.forward(&x)?;
            clock.lap(Part::Norm);
            x = block.attention.forward(&normed, &x, pass, clock)?;
            let normed = block.mlp_norm.forward(&x)?;
            clock.lap(Part::Norm);
            x = block.mlp.forward(&normed, &x)?;
            clock.lap(Part::Linear);
        }
        Ok(x)
    }

    fn logits(&self, hidden: &Tensor, clock: &mut Clock<'_>) -> Result<Tensor> {
        let normed = self.norm.forward(hidden)?;
        clock.lap(Part::Norm);
        let logits = self.head.forward(&normed)?;
        clock.lap(Part::Head);
        Ok(logits)
    }
}

pub(super) fn load(
    config: &Keys,
    weights: &mut Weights,
) -> std::result::Result<(Llada, ModelInfo), LoadError> {
    let LladaConfig {
        info,
        norm_eps: eps,
        rope_theta,
        bias,
        qkv_bias,
        tied,
    } = LladaConfig::read(config)?;
    let shape = AttentionShape {
        heads: info.heads,
        groups: info.groups,
        head_width: info.head_width,
        width: info.width,
        rope: Arc::new(RopeTable::new(
            rope_theta,
            info.head_width,
            info.max_positions,
        )),
    };
    let (d, m) = (info.width, info.mlp_width);
    let (q, kv) = (info.heads * info.head_width, info.groups * info.head_width);
    let root = "model.transformer";
    let embedding = Embedding::load(weights, &format!("{root}.wte"), (info.embedding_size, d))?;
    let mut blocks = Vec::new();
    for layer in 0..info.layers {
        let name = |part: &str| format!("{root}.blocks.{layer}.{part}");
        let matrix = |part, rows, bias| Matrix {
            name: name(part),
            rows,
            bias,
        };
        let qkv = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)]
            .map(|(part, rows)| matrix(part, rows, qkv_bias));
        let mlp = (
            matrix("ff_proj", m, bias),
            matrix("up_proj", m, bias),
            matrix("ff_out", d, bias),
        );
        blocks.push(Block {
            attention_norm: RmsNorm::load(weights, &name("attn_norm"), d, eps)?,
            attention: Attention::load(weights, &shape, layer, (qkv, matrix("attn_out", d, bias)))?,
            mlp_norm: RmsNorm::load(weights, &name("ff_norm"), d, eps)?,
            mlp: GatedMlp::load(weights, mlp)?,
        });
    }
    let norm = RmsNorm::load(weights, &format!("{root}.ln_f"), d, eps)?;
    let own = (!tied).then(|| Matrix {
        name: format!("{root}.ff_out"),
        rows: info.embedding_size,
        bias,
    });
    let head = lm_head(weights, &info, &embedding, own)?;
    Ok((
        Llada {
            embedding,
            blocks,
            norm,
            head,
        },
        info,
    ))
}

/// The LM head: `own`, or the embedding table where the two are tied.
fn lm_head(
    weights: &mut Weights,
    info: &ModelInfo,
    embedding: &Embedding,
    own: Option<Matrix>,
) -> std::result::Result<Linear, LoadError> {
    let (width, vocab) = (info.width, info.vocab_size);
    match own {
        Some(own) => head(weights, width, vocab, &Head::Own(own)),
        None => {
            weights.ignore("model.transformer.ff_out.weight");
            head(weights, width, vocab, &Head::Tied(&embedding.rows()?))
        }
    }
}
