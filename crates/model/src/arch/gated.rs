//! Loads adapters that change some rows.

use super::block::{GatedInput, GatedMlp, MlpFactors};
use super::load::Loader;
use super::source::SourceNumbers;
use super::tensors::Stack;
use crate::memory::floats;
use crate::weights::{GatedFactors, Module, widened};
use crate::{LoadError, RowGate};
use kernels::{Epilogue, Numbers, Storage, Stored};
use step::as_index;

impl<S: Storage> Loader<'_, S> {
    /// A matrix of a layer by its published name.
    pub(super) fn module(&self, number: usize, tensor: &str, rows: usize) -> Module {
        Module { name: format!("{}.{number}.{tensor}.weight", self.published.layers), rows }
    }

    /// Query, key and value.
    pub(super) fn qkv_modules(&self, number: usize) -> Vec<Module> {
        let heads = self.spec.info.heads;
        let (q, kv) = (heads.num_heads * heads.head_width, heads.num_kv_heads * heads.head_width);
        let parts = self.published.qkv.iter().zip([q, kv, kv]);
        parts.map(|(tensor, rows)| self.module(number, tensor, rows)).collect()
    }

    /// The MLP of a layer without experts, and the adapters of its two matrices.
    pub(super) fn dense(
        &mut self,
        number: usize,
    ) -> Result<(GatedMlp<S>, MlpFactors<S>), LoadError> {
        let (info, published) = (&self.spec.info, self.published);
        let (d, width) = (info.width, info.mlp_width);
        let dot = if published.mlp.is_empty() { "" } else { "." };
        let module = |tensor: &str, rows: usize| {
            self.module(number, &format!("{}{dot}{tensor}", published.mlp), rows)
        };
        let [gate, up, down] = published.gated;
        let (first, second) = ([module(gate, width), module(up, width)], [module(down, d)]);
        let dot = if self.names.mlp.is_empty() { "" } else { "." };
        let prefix = format!("{}.{number}{dot}{}", self.names.layers, self.names.mlp);
        let [gate_up, down] = self.mlp_matrices(&prefix, width);
        let stack = Stack { k: d, matrices: &gate_up, epilogue: self.spec.gate };
        let (gate_up, gate_factors) = self.adapted(stack, &first)?;
        let stack = Stack { k: width, matrices: &down, epilogue: Epilogue::None };
        let (down, down_factors) = self.adapted(stack, &second)?;
        Ok(([gate_up, down], [gate_factors, down_factors]))
    }

    /// Stores a matrix with the columns of a gated adapter.
    pub(super) fn widened(
        &mut self,
        name: &str,
        source: &SourceNumbers,
        matrix: Stored<'_>,
        factors: &GatedFactors,
    ) -> Result<(S::Matrix, Option<GatedInput<S>>), LoadError> {
        let ([rows, k], rank) = (matrix.shape, factors.rank);
        let SourceNumbers::Floats(numbers) = source else {
            let expected = "a dtype other than the blocks of a GGUF file, which an adapter needs";
            return Err(LoadError::Setup(format!("{name}: expected {expected}")));
        };
        let wide = widened(numbers, k, factors);
        let extra_bytes = source
            .bytes(rows, k)
            .saturating_add(floats(rows.saturating_mul(k.saturating_add(rank))));
        let (shape, numbers) = ([rows, k + rank], Numbers::Floats(&wide));
        let stored = self.stored(name, Stored { shape, numbers, ..matrix }, extra_bytes)?;
        let (shape, numbers) = ([rank, k], Numbers::Floats(&factors.inner));
        let inner = Stored { shape, numbers, bias: None, epilogue: Epilogue::None, ..matrix };
        let inner = self.stored(name, inner, extra_bytes)?;
        Ok((stored, Some(GatedInput { inner, rank })))
    }

    /// Replaces the mask's embedding in a table by that of the adapter for masks.
    pub(super) fn adapt_mask(&mut self, table: &mut [f32]) -> Result<(), LoadError> {
        let d = self.spec.info.width;
        let Some(RowGate::Masks(mask)) = self.weights.gate() else {
            return Ok(());
        };
        let Some(embedding) = self.weights.mask_embedding(d)? else {
            return Ok(());
        };
        // Only counted weights have no numbers.
        if let Some(row) = table.chunks_exact_mut(d).nth(as_index(mask)) {
            row.copy_from_slice(&embedding);
        }
        Ok(())
    }
}
