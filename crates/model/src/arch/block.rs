//! The layers of a transformer, and the arrays of its passes.

use crate::router::Router;
use crate::{HeadSizes, ModelInfo};
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{ArrayKind, Backend, Experts as StoredExperts, Norm, Pass, Selection, Storage};

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

/// A router, its experts, and the optional shared expert, which processes every row.
pub(super) struct Experts<S: Storage> {
    pub(super) router: Router,
    pub(super) stored: StoredExperts<S>,
    pub(super) shared: Option<GatedMlp<S>>,
}

/// The norms around attention and MLP, and the experts beside the dense MLP.
pub(super) struct Sandwich<S: Storage> {
    /// After attention.
    pub(super) attended: S::Vector,
    /// After the dense MLP.
    pub(super) dense: S::Vector,
    /// Before the router.
    pub(super) router: S::Vector,
    pub(super) before_experts: S::Vector,
    pub(super) experts: Experts<S>,
    pub(super) after_experts: S::Vector,
    /// After the sum of dense MLP and experts.
    pub(super) both: S::Vector,
    /// The factors of the result, for encoded rows and for denoised rows.
    pub(super) scalars: [f32; 2],
}

/// The weights of a canvas model outside of its layers.
pub(super) struct CanvasParts<S: Storage> {
    /// Rotary angles of layers with full attention.
    pub(super) rope_table: S::RopeTable,
    /// The norm of a mean embedding.
    pub(super) pre_norm: S::Vector,
    /// The MLP whose result is added to the embedding of a denoised row.
    pub(super) mlp: GatedMlp<S>,
    /// The weights of a norm without weights.
    pub(super) ones: S::Vector,
    /// The scaled embedding table, transposed.
    pub(super) soft: S::Matrix,
    /// Logits are `cap * tanh(x / cap)`.
    pub(super) cap: Option<f32>,
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

/// The arrays of attention, of the layers of one size.
pub(super) struct HeadArrays<B: Backend> {
    pub(super) qkv: B::Array,
    pub(super) q: B::Array,
    pub(super) attended: B::Array,
}

impl<B: Backend> HeadArrays<B> {
    /// Arrays of `rows` rows.
    pub(super) fn new(backend: &B, rows: usize, heads: HeadSizes) -> Result<Self> {
        let inner = heads.num_heads * heads.head_width;
        let all = inner + 2 * heads.num_kv_heads * heads.head_width;
        Ok(Self {
            qkv: backend.array(ArrayKind::Sums, rows, all)?,
            q: backend.array(ArrayKind::Queries, rows, inner)?,
            attended: backend.array(ArrayKind::Inputs, rows, inner)?,
        })
    }
}

/// Arrays of a canvas model's passes.
pub(super) struct Branches<B: Backend> {
    /// A branch before its norm.
    pub(super) one: B::Array,
    /// The sum of two branches.
    pub(super) both: B::Array,
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
        let full = info.canvas.map(|canvas| HeadArrays::new(backend, rows, canvas.full_heads));
        Ok(Self {
            x: backend.array(ArrayKind::Sums, rows, d)?,
            normed: backend.array(ArrayKind::Inputs, rows, d)?,
            heads: HeadArrays::new(backend, rows, info.heads)?,
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
        backend.linear(gate_up, &self.normed, rows, &mut self.gated)?;
        backend.linear_add(down, &self.gated, rows, &mut self.x)
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
