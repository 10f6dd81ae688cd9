//! The layers of a transformer.

use crate::HeadSizes;
use crate::router::Router;
use kernels::{Experts as StoredExperts, Storage};

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
    /// An adapter that changes some rows.
    pub(super) adapter: Option<Box<GatedAdapter<S>>>,
}

/// A gated adapter of a layer's matrices: the factors of each, if it is changed.
pub(super) struct GatedAdapter<S: Storage> {
    pub(super) qkv: Option<GatedInput<S>>,
    pub(super) out: Option<GatedInput<S>>,
    pub(super) mlp: MlpFactors<S>,
}

/// The same of a gated MLP: gate and up, and down.
pub(super) type MlpFactors<S> = [Option<GatedInput<S>>; 2];

/// The first factor A `[rank, k]` of a matrix `[n, k]`, which has the second one in `rank` columns more.
pub(super) struct GatedInput<S: Storage> {
    pub(super) inner: S::Matrix,
    pub(super) rank: usize,
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
    pub(super) fn experts(&self) -> Option<&Experts<S>> {
        match (&self.mlp, &self.sandwich) {
            (Mlp::Experts(experts), _) => Some(experts),
            (Mlp::Dense(_), Some(sandwich)) => Some(&sandwich.experts),
            (Mlp::Dense(_), None) => None,
        }
    }
}
