//! Loads one layer of a transformer.

use super::block::{Block, GatedAdapter, GatedMlp, Mlp};
use super::load::Loader;
use super::source::Matrix;
use super::tensors::Stack;
use crate::LoadError;
use kernels::{Epilogue, Storage, StoredVector};

impl<S: Storage> Loader<'_, S> {
    pub(super) fn block(&mut self, number: usize) -> Result<Block<S>, LoadError> {
        let (spec, names) = (self.spec, self.names);
        let info = &spec.info;
        let inner = info.heads.num_heads * info.heads.head_width;
        let name = |tensor: &str| format!("{}.{number}.{tensor}", names.layers);
        let attention_norm = self.norm(name(names.attention_norm))?;
        let matrices = self.qkv(number);
        let stack = Stack { k: info.width, matrices: &matrices, epilogue: Epilogue::None };
        let (qkv, qkv_factors) = self.adapted(stack, &self.qkv_modules(number))?;
        let out = Matrix { name: name(names.attention_out), rows: info.width, bias: spec.out_bias };
        let stack = Stack { k: inner, matrices: &[out], epilogue: Epilogue::None };
        let module = self.module(number, self.published.attention_out, info.width);
        let (out, out_factors) = self.adapted(stack, &[module])?;
        let head_norms = match spec.head_norms {
            true => Some(self.head_norms(names.head_norms.map(name))?),
            false => None,
        };
        let mlp_norm = self.norm(name(names.mlp_norm))?;
        let mut mlp_factors = [None, None];
        let mlp = match &spec.experts {
            Some(experts) if experts.layers[number] => {
                Mlp::Experts(Box::new(self.experts(number, experts)?))
            }
            _ => {
                let mlp;
                (mlp, mlp_factors) = self.dense(number)?;
                Mlp::Dense(mlp)
            }
        };
        let adapter = GatedAdapter { qkv: qkv_factors, out: out_factors, mlp: mlp_factors };
        let adapter = self.weights.gate().map(|_| Box::new(adapter));
        Ok(Block {
            attention_norm,
            qkv,
            head_norms,
            out,
            mlp_norm,
            mlp,
            heads: info.heads,
            kv: self.first_kv + number,
            full: true,
            sandwich: None,
            adapter,
        })
    }

    /// Query, key and value, or one matrix with all three.
    fn qkv(&self, number: usize) -> Vec<Matrix> {
        let info = &self.spec.info;
        let (q, kv) = (
            info.heads.num_heads * info.heads.head_width,
            info.heads.num_kv_heads * info.heads.head_width,
        );
        let rows: &[usize] = match self.names.qkv {
            [_] => &[q + 2 * kv],
            _ => &[q, kv, kv],
        };
        let tensors = self.names.qkv.iter().zip(rows);
        let matrices = tensors.map(|(tensor, &rows)| Matrix {
            name: format!("{}.{number}.{tensor}", self.names.layers),
            rows,
            bias: self.spec.qkv_bias,
        });
        matrices.collect()
    }

    /// The norm weights of all query and key heads, one after another.
    fn head_norms(&mut self, [query, key]: [String; 2]) -> Result<S::Vector, LoadError> {
        let info = &self.spec.info;
        let mut all = Vec::new();
        for (name, count) in [(query, info.heads.num_heads), (key, info.heads.num_kv_heads)] {
            let one = self.weights.tensor(&format!("{name}.weight"), &[info.heads.head_width])?;
            all.extend(one.repeat(count));
        }
        self.vector(StoredVector {
            count: (info.heads.num_heads + info.heads.num_kv_heads) * info.heads.head_width,
            numbers: &all,
        })
    }

    /// The gated MLP of `width` with this name prefix.
    pub(super) fn gated(
        &mut self,
        number: usize,
        prefix: &str,
        width: usize,
    ) -> Result<GatedMlp<S>, LoadError> {
        let dot = if prefix.is_empty() { "" } else { "." };
        self.gated_at(&format!("{}.{number}{dot}{prefix}", self.names.layers), width)
    }

    /// The gated MLP of `width` with this complete name prefix.
    pub(super) fn gated_at(
        &mut self,
        prefix: &str,
        width: usize,
    ) -> Result<GatedMlp<S>, LoadError> {
        let d = self.spec.info.width;
        let [gate_up, down] = self.mlp_matrices(prefix, width);
        let gate_up = self.fused(d, &gate_up, self.spec.gate)?;
        let down = self.fused(width, &down, Epilogue::None)?;
        Ok([gate_up, down])
    }

    /// Gate and up, and down.
    pub(super) fn mlp_matrices(&self, prefix: &str, width: usize) -> [Vec<Matrix>; 2] {
        let matrix = |tensor: &str, rows: usize| Matrix {
            name: format!("{prefix}.{tensor}"),
            rows,
            bias: self.spec.bias,
        };
        let [gate, up, down] = self.names.gated;
        let down = matrix(down, self.spec.info.width);
        [vec![matrix(gate, width), matrix(up, width)], vec![down]]
    }
}
