//! Loads one layer of a transformer.

use super::names::Names;
use super::transformer::Mlp;
use crate::LoadError;
use crate::config::{ExpertSpec, RouterSpec, Spec};
use crate::layers::{Attention, AttentionShape, Experts, GatedMlp, Matrix, Router};
use crate::weights::Weights;

/// The layer to load.
pub(super) struct Layer<'a> {
    pub(super) spec: &'a Spec,
    pub(super) names: &'a Names,
    pub(super) number: usize,
}

impl Layer<'_> {
    /// The full name of a tensor of this layer.
    pub(super) fn name(&self, tensor: &str) -> String {
        format!("{}.{}.{tensor}", self.names.layers, self.number)
    }

    fn matrix(&self, tensor: &str, rows: usize, bias: bool) -> Matrix {
        Matrix {
            name: self.name(tensor),
            rows,
            bias,
        }
    }

    /// Query, key and value, or one matrix with all three.
    pub(super) fn qkv(&self) -> Vec<Matrix> {
        let info = &self.spec.info;
        let (q, kv) = (info.heads * info.head_width, info.groups * info.head_width);
        let rows: &[usize] = match self.names.qkv {
            [_] => &[q + 2 * kv],
            _ => &[q, kv, kv],
        };
        let tensors = self.names.qkv.iter().zip(rows);
        tensors
            .map(|(tensor, &rows)| self.matrix(tensor, rows, self.spec.qkv_bias))
            .collect()
    }

    /// The output projection of attention.
    pub(super) fn out(&self) -> Matrix {
        let width = self.spec.info.width;
        self.matrix(self.names.attention_out, width, self.spec.out_bias)
    }

    /// Attention with its projections and head norms.
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
        let head_norms = names.head_norms.map(|norm| self.name(norm));
        attention.with_head_norms(weights, &head_norms, spec.norm_eps)
    }

    /// The dense MLP or the experts.
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

    /// The gated MLP of `width` with this name prefix.
    fn gated(
        &self,
        weights: &mut Weights,
        prefix: &str,
        width: usize,
    ) -> Result<GatedMlp, LoadError> {
        let [gate, up, down] = self.gated_matrices(prefix, width);
        GatedMlp::load(weights, (gate, up, down))
    }

    /// Gate, up and down matrices of a gated MLP of `width` with this name prefix.
    pub(super) fn gated_matrices(&self, prefix: &str, width: usize) -> [Matrix; 3] {
        let [gate, up, down] = self.names.gated.map(|tensor| match prefix {
            "" => tensor.to_owned(),
            _ => format!("{prefix}.{tensor}"),
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
        let router_spec = RouterSpec {
            block: match self.spec.info.attention {
                step::Attention::Blocks(length) => Some(length),
                _ => None,
            },
            ..spec.router
        };
        let router = Router::load(weights, (router, width), bias.as_deref(), router_spec)?;
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
