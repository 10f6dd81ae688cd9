//! What a configuration says of a decoder, in the same words for every family.

use crate::ModelInfo;

/// A decoder to be loaded.
pub(crate) struct Spec {
    /// Sizes and ids; parameters and the dtype are not known yet.
    pub(crate) info: ModelInfo,
    pub(crate) norm_eps: f32,
    pub(crate) rope_theta: f64,
    /// First numbers of a head that are rotated, an even number.
    pub(crate) rotary_width: usize,
    /// Biases on query, key and value.
    pub(crate) qkv_bias: bool,
    /// A bias on the matrix behind attention.
    pub(crate) out_bias: bool,
    /// Biases on the matrices of an MLP and on the LM head.
    pub(crate) bias: bool,
    /// Norms of every query and key head before they are rotated.
    pub(crate) head_norms: bool,
    /// The experts, if some layers have them.
    pub(crate) experts: Option<ExpertSpec>,
}

/// The experts of a decoder.
pub(crate) struct ExpertSpec {
    /// Experts of a layer.
    pub(crate) count: usize,
    /// MLP width of one.
    pub(crate) width: usize,
    /// MLP width of the one that every row goes through.
    pub(crate) shared: Option<usize>,
    /// Which layers have them.
    pub(crate) layers: Vec<bool>,
    pub(crate) router: RouterSpec,
}

/// How a row's experts are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RouterSpec {
    /// Experts of a row.
    pub(crate) chosen: usize,
    pub(crate) score: Score,
    /// Whether a correction per expert is added to the scores before experts are chosen.
    pub(crate) bias: bool,
    /// Length of the model's blocks of positions, if it has any.
    pub(crate) block: Option<u32>,
}

/// From the router's logits to weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Score {
    /// Softmax over all experts; a chosen one weighs its probability, correction included.
    Softmax,
    /// Sigmoids; chosen among the best groups of experts. The chosen ones' own sigmoids, shared
    /// out to 1 if they are several, weigh `scale` together.
    Sigmoid {
        /// Groups of experts, of two or more each.
        groups: usize,
        /// Groups that a row chooses among, by the sum of their two best scores.
        best: usize,
        /// Weight of all chosen ones.
        scale: f32,
    },
}
