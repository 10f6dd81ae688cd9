//! Loads a transformer from a family's tensor names and its configuration.

use super::layer::Layer;
use super::names::Names;
use super::transformer::{Block, Transformer};
use crate::config::{MOST_ANGLES, Spec};
use crate::layers::{AttentionShape, Embedding, Head, Matrix, RmsNorm, head};
use crate::memory::floats;
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use kernels::{Linear, RopeTable};
use std::sync::Arc;

/// Loads the transformer that `spec` describes, with the family's tensor names.
pub(super) fn load(
    weights: &mut Weights,
    spec: Spec,
    names: &Names,
) -> Result<(Transformer, ModelInfo), LoadError> {
    let info = &spec.info;
    let (d, eps) = (info.width, spec.norm_eps);
    // A survey computes no angles.
    let positions = if weights.reads { info.max_positions } else { 0 };
    let angles = spec.rotary_width.saturating_mul(info.max_positions);
    if angles > MOST_ANGLES {
        return Err(LoadError::Setup(format!(
            "the configuration: expected at most {MOST_ANGLES} rotary angles, found {} positions \
             times a head width of {}",
            info.max_positions, spec.rotary_width
        )));
    }
    weights.memory.keep(floats(angles));
    let shape = AttentionShape {
        heads: info.heads,
        groups: info.groups,
        head_width: info.head_width,
        width: d,
        rope: Arc::new(RopeTable::new(
            spec.rope_theta,
            spec.rotary_width,
            positions,
        )),
    };
    let embedding = Embedding::load(weights, names.embedding, (info.embedding_size, d))?;
    let mut blocks = Vec::new();
    for number in 0..info.layers {
        let layer = Layer {
            spec: &spec,
            names,
            number,
        };
        blocks.push(Block {
            attention_norm: RmsNorm::load(weights, &layer.name(names.attention_norm), d, eps)?,
            attention: layer.attention(weights, &shape)?,
            mlp_norm: RmsNorm::load(weights, &layer.name(names.mlp_norm), d, eps)?,
            mlp: layer.mlp(weights)?,
        });
    }
    let norm = RmsNorm::load(weights, names.norm, d, eps)?;
    let head = lm_head(weights, &spec, names, &embedding)?;
    let transformer = Transformer {
        embedding,
        blocks,
        norm,
        head,
    };
    Ok((transformer, spec.info))
}

/// The LM head: its own matrix, or the embedding table if the two are tied.
fn lm_head(
    weights: &mut Weights,
    spec: &Spec,
    names: &Names,
    embedding: &Embedding,
) -> Result<Linear, LoadError> {
    let info = &spec.info;
    let (d, vocab) = (info.width, info.vocab_size);
    if info.tied {
        // Some exports store the tied head too.
        weights.ignore(&format!("{}.weight", names.head));
        let table = Head::Tied(&embedding.rows()?, info.embedding_size);
        return head(weights, d, vocab, &table);
    }
    head(weights, d, vocab, &Head::Own(own_head(spec, names)))
}

/// The LM head matrix of a checkpoint with untied embeddings.
pub(super) fn own_head(spec: &Spec, names: &Names) -> Matrix {
    Matrix {
        name: names.head.to_owned(),
        rows: spec.info.embedding_size,
        bias: spec.bias,
    }
}
