//! The arrays of a pass.

use super::arrays::{Branches, ContextArrays, HeadArrays};
use super::block::{GatedAdapter, GatedInput, GatedMlp};
use crate::ModelInfo;
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{ArrayKind, Backend, Norm, Pass, Selection};

/// All arrays.
pub(crate) struct Work<B: Backend> {
    /// The residual stream `[r, d]`.
    pub(super) x: B::Array,
    pub(super) normed: B::Array,
    /// Arrays of layers with a window, and of all layers of models without windows.
    pub(super) heads: HeadArrays<B>,
    /// Arrays of a canvas model's layers with full attention.
    pub(super) full: Option<HeadArrays<B>>,
    pub(super) gated: B::Array,
    /// As `gated`, for the expert that processes every row.
    pub(super) shared: Option<B::Array>,
    /// Additional arrays of canvas models.
    pub(super) branches: Option<Branches<B>>,
    /// Additional arrays of a drafter's target.
    pub(super) context: Option<ContextArrays<B>>,
}

impl<B: Backend> Work<B> {
    /// Allocates arrays for passes of up to `rows` rows.
    pub(crate) fn new(backend: &B, info: &ModelInfo, rows: usize) -> Result<Self> {
        let d = info.width;
        let normed = info.experts.map_or(ArrayKind::Inputs, |_| ArrayKind::Routed);
        let full = info.canvas.map(|canvas| HeadArrays::new(backend, rows, canvas.full_heads));
        Ok(Self {
            x: backend.array(ArrayKind::Sums, rows, d)?,
            normed: backend.array(normed, rows, d)?,
            heads: HeadArrays::new(backend, rows, info.heads)?,
            full: full.transpose()?,
            gated: backend.array(ArrayKind::Gated, rows, info.mlp_width)?,
            shared: match info.experts.and_then(|experts| experts.shared_width) {
                Some(width) => Some(backend.array(ArrayKind::Gated, rows, width)?),
                None => None,
            },
            branches: match info.canvas {
                Some(_) => Some(Branches {
                    one: backend.array(ArrayKind::Sums, rows, d)?,
                    both: backend.array(ArrayKind::Sums, rows, d)?,
                }),
                None => None,
            },
            context: ContextArrays::new(backend, info, rows)?,
        })
    }
}

/// Appends to rows of `x` what a matrix with a gated adapter reads behind them.
pub(super) fn append<B: Backend>(
    backend: &B,
    pass: &Pass<'_, B>,
    factors: Option<&GatedInput<B>>,
    x: &mut B::Array,
) -> Result<()> {
    match factors {
        Some(GatedInput { inner, rank }) => backend.append_adapted(inner, *rank, pass, x),
        None => Ok(()),
    }
}

impl<B: Backend> Work<B> {
    /// Normalises rows of the residual stream.
    pub(super) fn norm(
        &mut self,
        backend: &B,
        pass: &Pass<'_, B>,
        norm: Norm<'_, B>,
        rows: &RowSet,
    ) -> Result<()> {
        let input = Selection { array: &self.x, rows };
        backend.norm(input, pass, norm, &mut self.normed)
    }

    /// Overwrites `gated` with the inputs of the last product of an MLP of the normalised rows, with its gated
    /// adapter.
    pub(super) fn gate(
        &mut self,
        backend: &B,
        pass: &Pass<'_, B>,
        gate_up: &B::Matrix,
        adapter: Option<&GatedAdapter<B>>,
    ) -> Result<()> {
        let rows = backend.rows(pass);
        append(
            backend,
            pass,
            adapter.and_then(|adapter| adapter.mlp[0].as_ref()),
            &mut self.normed,
        )?;
        backend.linear(gate_up, &self.normed, rows, &mut self.gated)?;
        append(backend, pass, adapter.and_then(|adapter| adapter.mlp[1].as_ref()), &mut self.gated)
    }

    /// Adds the expert that processes every row.
    pub(super) fn add_shared(
        &mut self,
        backend: &B,
        [gate_up, down]: &GatedMlp<B>,
        rows: usize,
    ) -> Result<()> {
        let Some(shared) = &mut self.shared else {
            bail!("a model with a shared expert has an array for it");
        };
        backend.linear(gate_up, &self.normed, rows, shared)?;
        backend.linear_add(down, &*shared, rows, &mut self.x)
    }
}
