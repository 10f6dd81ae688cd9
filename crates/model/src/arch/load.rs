//! Loading a decoder: a family's names of tensors and what its configuration says.

use super::decoder::{Block, Decoder, Mlp};
use crate::config::{ExpertSpec, Spec};
use crate::layers::{
    Attention, AttentionShape, Embedding, Experts, GatedMlp, Head, Matrix, RmsNorm, Router, head,
};
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use kernels::{Linear, RopeTable};
use std::sync::Arc;

/// What a family calls its tensors; those of a layer without `{layers}.{layer}.` in front, all
/// without `.weight` behind.
pub(super) struct Names {
    pub(super) embedding: &'static str,
    pub(super) layers: &'static str,
    pub(super) attention_norm: &'static str,
    /// Query, key and value, or one matrix of all three.
    pub(super) qkv: &'static [&'static str],
    /// Norms of the query heads and of the key heads, where a family has them.
    pub(super) head_norms: [&'static str; 2],
    pub(super) attention_out: &'static str,
    pub(super) mlp_norm: &'static str,
    /// Prefix of a dense MLP.
    pub(super) mlp: &'static str,
    /// Gate, up and down of an MLP.
    pub(super) parts: [&'static str; 3],
    pub(super) experts: ExpertNames,
    pub(super) norm: &'static str,
    pub(super) head: &'static str,
}

/// Names of a layer with experts.
pub(super) struct ExpertNames {
    pub(super) router: &'static str,
    /// The correction of the router's scores, a name in full.
    pub(super) bias: &'static str,
    /// Prefix of all experts, which are numbered.
    pub(super) experts: &'static str,
    /// Prefix of the expert that every row goes through.
    pub(super) shared: &'static str,
}

/// Loads what `spec` describes under the family's names.
pub(super) fn load(
    weights: &mut Weights,
    spec: Spec,
    names: &Names,
) -> Result<(Decoder, ModelInfo), LoadError> {
    let info = &spec.info;
    let (d, eps) = (info.width, spec.norm_eps);
    let shape = AttentionShape {
        heads: info.heads,
        groups: info.groups,
        head_width: info.head_width,
        width: d,
        rope: Arc::new(RopeTable::new(
            spec.rope_theta,
            spec.rotary_width,
            info.max_positions,
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
    let decoder = Decoder {
        embedding,
        blocks,
        norm,
        head,
    };
    Ok((decoder, spec.info))
}

/// The LM head: a matrix of its own, or the embedding table where the two are tied.
fn lm_head(
    weights: &mut Weights,
    spec: &Spec,
    names: &Names,
    embedding: &Embedding,
) -> Result<Linear, LoadError> {
    let info = &spec.info;
    let (d, vocab) = (info.width, info.vocab_size);
    if spec.tied {
        // Some exports store it all the same.
        weights.ignore(&format!("{}.weight", names.head));
        return head(weights, d, vocab, &Head::Tied(&embedding.rows()?));
    }
    let own = Matrix {
        name: names.head.to_owned(),
        rows: info.embedding_size,
        bias: spec.bias,
    };
    head(weights, d, vocab, &Head::Own(own))
}

/// One layer to be loaded.
struct Layer<'a> {
    spec: &'a Spec,
    names: &'a Names,
    number: usize,
}

impl Layer<'_> {
    fn name(&self, part: &str) -> String {
        format!("{}.{}.{part}", self.names.layers, self.number)
    }

    fn matrix(&self, part: &str, rows: usize, bias: bool) -> Matrix {
        Matrix {
            name: self.name(part),
            rows,
            bias,
        }
    }

    fn attention(
        &self,
        weights: &mut Weights,
        shape: &AttentionShape,
    ) -> Result<Attention, LoadError> {
        let Self { spec, names, .. } = *self;
        let (q, kv) = (
            shape.heads * shape.head_width,
            shape.groups * shape.head_width,
        );
        let rows: &[usize] = match names.qkv {
            [_] => &[q + 2 * kv],
            _ => &[q, kv, kv],
        };
        let parts = names.qkv.iter().zip(rows);
        let qkv: Vec<Matrix> = parts
            .map(|(part, &rows)| self.matrix(part, rows, spec.qkv_bias))
            .collect();
        let out = self.matrix(names.attention_out, shape.width, spec.out_bias);
        let attention = Attention::load(weights, shape, self.number, (&qkv, out))?;
        if !spec.head_norms {
            return Ok(attention);
        }
        let head_norms = names.head_norms.map(|part| self.name(part));
        attention.with_head_norms(weights, &head_norms, spec.norm_eps)
    }

    fn mlp(&self, weights: &mut Weights) -> Result<Mlp, LoadError> {
        let info = &self.spec.info;
        match &self.spec.experts {
            Some(experts) if experts.layers[self.number] => {
                Ok(Mlp::Experts(self.experts(weights, experts)?))
            }
            _ => Ok(Mlp::Dense(self.gated(
                weights,
                self.names.mlp,
                info.mlp_width,
            )?)),
        }
    }

    /// An MLP of `width` under a prefix.
    fn gated(
        &self,
        weights: &mut Weights,
        prefix: &str,
        width: usize,
    ) -> Result<GatedMlp, LoadError> {
        let [gate, up, down] = self.names.parts.map(|part| match prefix {
            "" => part.to_owned(),
            _ => format!("{prefix}.{part}"),
        });
        let bias = self.spec.bias;
        let parts = (
            self.matrix(&gate, width, bias),
            self.matrix(&up, width, bias),
            self.matrix(&down, self.spec.info.width, bias),
        );
        GatedMlp::load(weights, parts)
    }

    fn experts(&self, weights: &mut Weights, spec: &ExpertSpec) -> Result<Experts, LoadError> {
        let names = &self.names.experts;
        let router = self.matrix(names.router, spec.count, false);
        let bias = spec.router.bias.then(|| self.name(names.bias));
        let width = self.spec.info.width;
        let router = Router::load(weights, (router, width), bias.as_deref(), spec.router)?;
        let experts = (0..spec.count)
            .map(|i| self.gated(weights, &format!("{}.{i}", names.experts), spec.width))
            .collect::<Result<_, _>>()?;
        let shared = match spec.shared {
            Some(width) => Some(self.gated(weights, names.shared, width)?),
            None => None,
        };
        Ok(Experts::new(router, experts, shared))
    }
}
