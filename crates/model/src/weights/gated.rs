//! An adapter for some rows (gated LoRA, arXiv 2507.11851): those of masks (I-DLM's conditional LoRA,
//! arXiv 2604.11035), or those of open blocks (Nemotron-Labs-Diffusion's adapter for drafts). All other
//! rows are computed as without it.

use super::Weights;
use super::lora::Lora;
use crate::memory::floats;
use crate::{LoadError, RowGate};

/// The factors of stacked matrices `[rows, k]`: to the product of such a row `B A x` is added.
pub(crate) struct GatedFactors {
    /// A `[rank, k]`, those of the matrices one after another; empty if weights are only counted.
    pub(crate) inner: Vec<f32>,
    /// B `[rows, rank]` with the scale, each matrix over its own columns; empty likewise.
    pub(crate) outer: Vec<f32>,
    /// Sum of the ranks, rounded up to a group of the dtype; rows of A and columns of B beyond are 0.
    pub(crate) rank: usize,
}

/// A matrix that an adapter may change.
pub(crate) struct Module {
    /// Its published name, with `.weight`.
    pub(crate) name: String,
    pub(crate) rows: usize,
}

impl Weights {
    /// The adapter for some rows, if there is one.
    fn gated_adapter(&self) -> Option<&Lora> {
        self.lora.as_ref().filter(|lora| lora.gate.is_some())
    }

    /// The rows that an adapter changes, if it is for some alone.
    pub(crate) fn gate(&self) -> Option<RowGate> {
        self.gated_adapter()?.gate
    }

    /// The adapter's embedding `[d]` of the mask; `None` if the mask keeps that of the checkpoint.
    pub(crate) fn mask_embedding(&mut self, width: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let reads = self.reads;
        let embedding = self.gated_adapter().map(|lora| lora.embedding(width, reads));
        let embedding = embedding.transpose()?.flatten();
        if embedding.is_some() {
            self.received(&[width], floats(width), 0);
        }
        Ok(embedding)
    }

    /// The factors of matrices over one input of width `k`; `None` if the adapter changes none of them.
    pub(crate) fn gated_factors(
        &mut self,
        modules: &[Module],
        k: usize,
    ) -> Result<Option<GatedFactors>, LoadError> {
        let (reads, group) = (self.reads, self.dtype.group());
        let Some(lora) = self.gated_adapter() else {
            return Ok(None);
        };
        let rank_of = |module: &Module| lora.rank_and_scale(&module.name).map(|(rank, _)| rank);
        let changed = modules.iter().filter_map(|module| Some((module, rank_of(module)?)));
        let rank = changed.clone().map(|(_, rank)| rank).sum::<usize>().next_multiple_of(group);
        if rank == 0 {
            return Ok(None);
        }
        let (mut inner, mut outer, mut first) = (Vec::new(), Vec::new(), 0);
        for Module { name, rows } in modules {
            let mut columns = vec![0.0; if reads { rows * rank } else { 0 }];
            if let Some((own, scale)) = lora.rank_and_scale(name) {
                let (a, b) = lora.read(name, [*rows, k], reads)?;
                for (row, factors) in columns.chunks_exact_mut(rank).zip(b.chunks_exact(own)) {
                    let columns = row[first..].iter_mut().zip(factors);
                    columns.for_each(|(column, factor)| *column = scale * factor);
                }
                inner.extend(a);
                first += own;
            }
            outer.extend(columns);
        }
        inner.resize(if reads { rank * k } else { 0 }, 0.0);
        let own = changed.clone().map(|(module, rank)| (module.rows + k) * rank).sum();
        let names: Vec<String> = changed.map(|(module, _)| module.name.clone()).collect();
        let rows: usize = modules.iter().map(|module| module.rows).sum();
        let held = floats(rank.saturating_mul(rows.saturating_add(k)));
        self.used.extend(names);
        self.received(&[own], held, 0);
        Ok(Some(GatedFactors { inner, outer, rank }))
    }
}

/// A matrix `[rows, k]` with the columns of factors `[rows, rank]` after its own.
pub(crate) fn widened(numbers: &[f32], k: usize, factors: &GatedFactors) -> Vec<f32> {
    let mut wide = Vec::with_capacity(numbers.len() + factors.outer.len());
    for (row, more) in numbers.chunks_exact(k).zip(factors.outer.chunks_exact(factors.rank)) {
        wide.extend_from_slice(row);
        wide.extend_from_slice(more);
    }
    wide
}
