//! Loading one layer of a decoder.

use super::decoder::Mlp;
use super::names::Names;
use crate::LoadError;
use crate::config::{ExpertSpec, RouterSpec, Spec};
use crate::layers::{Attention, AttentionShape, Experts, GatedMlp, Matrix, Router};
use crate::weights::Weights;

/// One layer to be loaded.
pub(super) struct Layer<'a> {
    pub(super) spec: &'a Spec,
    pub(super) names: &'a Names,
    pub(super) number: usize,
}

impl Layer<'_> {
    /// The name of a part.
    pub(super) fn name(&self, part: &str) -> String {
        format!("{}.{}.{part}", self.names.layers, self.number)
    }

    fn matrix(&self, part: &str, rows: usize, bias: bool) -> Matrix {
        Matrix {
            name: self.name(part),
            rows,
            bias,
        }
    }

    /// Query, key and value, or one matrix of all three.
    pub(super) fn qkv(&self) -> Vec<Matrix> {
        let info = &self.spec.info;
        let (q, kv) = (info.heads * info.head_width, info.groups * info.head_width);
        let rows: &[usize] = match self.names.qkv {
            [_] => &[q + 2 * kv],
            _ => &[q, kv, kv],
        };
        let parts = self.names.qkv.iter().zip(rows);
        parts
            .map(|(part, &rows)| self.matrix(part, rows, self.spec.qkv_bias))
            .collect()
    }

    /// The matrix behind attention.
    pub(super) fn out(&self) -> Matrix {
        let width = self.spec.info.width;
        self.matrix(self.names.attention_out, width, self.spec.out_bias)
    }

    /// Attention with all that belongs to it.
    pub(super) fn attention(
        &self,
        weights: &mut Weights,
        shape: &AttentionShape,
    ) -> Result<Attention, LoadError> {
        let Self { spec, names, .. } = *self;
        let attention = Attention::load(weights, shape, self.number, (&self.qkv(), self.out()))?;
        if !spec.head_norms {
            return Ok(attention);
        }
        let head_norms = names.head_norms.map(|part| self.name(part));
        attention.with_head_norms(weights, &head_norms, spec.norm_eps)
    }

    /// The MLP, or the experts.
    pub(super) fn mlp(&self, weights: &mut Weights) -> Result<Mlp, LoadError> {
        let info = &self.spec.info;
        match &self.spec.experts {
            Some(experts) if experts.layers[self.number] => {
                let experts = self.experts(weights, experts)?;
                Ok(Mlp::Experts(Box::new(experts)))
            }
            _ => {
                let mlp = self.gated(weights, self.names.mlp, info.mlp_width)?;
                Ok(Mlp::Dense(Box::new(mlp)))
            }
        }
    }

    /// An MLP of `width` under a prefix.
    fn gated(
        &self,
        weights: &mut Weights,
        prefix: &str,
        width: usize,
    ) -> Result<GatedMlp, LoadError> {
        let [gate, up, down] = self.gated_parts(prefix, width);
        GatedMlp::load(weights, (gate, up, down))
    }

    /// Gate, up and down of an MLP of `width` under a prefix.
    pub(super) fn gated_parts(&self, prefix: &str, width: usize) -> [Matrix; 3] {
        let [gate, up, down] = self.names.parts.map(|part| match prefix {
            "" => part.to_owned(),
            _ => format!("{prefix}.{part}"),
        });
        let bias = self.spec.bias;
        [
            self.matrix(&gate, width, bias),
            self.matrix(&up, width, bias),
            self.matrix(&down, self.spec.info.width, bias),
        ]
    }

    fn experts(&self, weights: &mut Weights, spec: &ExpertSpec) -> Result<Experts, LoadError> {
        let names = &self.names.experts;
        let router = self.matrix(names.router, spec.count, false);
        let bias = spec.router.bias.then(|| self.name(names.bias));
        let width = self.spec.info.width;
        let how = RouterSpec {
            block: match self.spec.info.attention {
                step::Attention::Blocks(length) => Some(length),
                _ => None,
            },
            ..spec.router
        };
        let router = Router::load(weights, (router, width), bias.as_deref(), how)?;
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
