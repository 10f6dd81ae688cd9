//! The layers of a transformer, and the arrays of its passes.

use super::attention::HeadArrays;
use super::canvas::{Branches, Sandwich};
use super::experts::Experts;
use crate::{HeadSizes, ModelInfo};
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{ArrayKind, Backend, Norm, Pass, Selection, Storage};

/// One layer.
pub(super) struct Block<S: Storage> {
    pub(super) attention_norm: S::Vector,
    pub(super) qkv: S::Matrix,
    /// Norm weights of all query and key heads, one after another.
    pub(super) head_norms: Option<S::Vector>,
    pub(super) out: S::Matrix,
    pub(super) mlp_norm: S::Vector,
    pub(super) mlp: Mlp<S>,
    pub(super) heads: HeadSizes,
    /// The layer's number among the keys and values.
    pub(super) kv: usize,
    /// True if its rows see all that the batch lets them see; otherwise only a window of it.
    pub(super) full: bool,
    /// The additional properties of a canvas model.
    pub(super) sandwich: Option<Box<Sandwich<S>>>,
}

/// `down(silu(gate x) * up x)`: gate and up in one matrix, and down.
pub(super) type GatedMlp<S> = [<S as Storage>::Matrix; 2];

/// The MLP of a layer.
pub(super) enum Mlp<S: Storage> {
    /// One MLP for all rows.
    Dense(GatedMlp<S>),
    /// A mixture of experts.
    Experts(Box<Experts<S>>),
}

impl<S: Storage> Block<S> {
    /// Its experts.
    pub(super) fn experts(&self) -> Option<&Experts<S>> {
        match (&self.mlp, &self.sandwich) {
            (Mlp::Experts(experts), _) => Some(experts),
            (Mlp::Dense(_), Some(sandwich)) => Some(&sandwich.experts),
            (Mlp::Dense(_), None) => None,
        }
    }
}

/// The arrays of a pass.
pub(crate) struct Work<B: Backend> {
    /// The residual stream `[r, d]`.
    pub(super) x: B::Array,
    pub(super) normed: B::Array,
    /// The table of layers with a window, and of all layers of models without windows.
    pub(super) heads: HeadArrays<B>,
    /// The additional parts of a canvas model's layers.
    pub(super) full: Option<HeadArrays<B>>,
    pub(super) gated: B::Array,
    /// The same for the expert that processes every row.
    pub(super) shared: Option<B::Array>,
    /// Additional arrays of canvas models.
    pub(super) branches: Option<Branches<B>>,
}

impl<B: Backend> Work<B> {
    /// Allocates arrays for passes of up to `rows` rows.
    pub(crate) fn new(backend: &B, info: &ModelInfo, rows: usize) -> Result<Self> {
        let d = info.width;
        let heads = |num_kv_heads, head_width| {
            HeadArrays::new(backend, (rows, info.heads.num_heads), (num_kv_heads, head_width))
        };
        let full = info
            .canvas
            .map(|canvas| heads(canvas.full_heads.num_kv_heads, canvas.full_heads.head_width));
        Ok(Self {
            x: backend.array(ArrayKind::Sums, rows, d)?,
            normed: backend.array(ArrayKind::Inputs, rows, d)?,
            heads: heads(info.heads.num_kv_heads, info.heads.head_width)?,
            full: full.transpose()?,
            gated: backend.array(ArrayKind::Inputs, rows, info.mlp_width)?,
            shared: match info.experts.and_then(|experts| experts.shared_width) {
                Some(width) => Some(backend.array(ArrayKind::Inputs, rows, width)?),
                None => None,
            },
            branches: match info.canvas {
                Some(_) => Some(Branches {
                    one: backend.array(ArrayKind::Sums, rows, d)?,
                    both: backend.array(ArrayKind::Sums, rows, d)?,
                }),
                None => None,
            },
        })
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
        let from = Selection { of: &self.x, rows };
        backend.norm(from, pass, norm, &mut self.normed)
    }

    /// Adds the MLP of the normalised rows to the residual stream.
    pub(super) fn add_mlp(
        &mut self,
        backend: &B,
        [gate_up, down]: &GatedMlp<B>,
        rows: usize,
    ) -> Result<()> {
        backend.linear(gate_up, (&self.normed, rows), &mut self.gated)?;
        backend.linear_add(down, (&self.gated, rows), &mut self.x)
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
        backend.linear(gate_up, (&self.normed, rows), shared)?;
        backend.linear_add(down, (&*shared, rows), &mut self.x)
    }
}
