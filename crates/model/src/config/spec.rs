//! The specification of a transformer, in the same form for all families.

use crate::config::Keys;
use crate::{LoadError, ModelInfo};
use kernels::{Epilogue, QueryGrowth, RopeScaling, RouterFunction};

/// The specification of a transformer.
pub(crate) struct Spec {
    /// Sizes and ids; the number of parameters and the dtypes are set later.
    pub(crate) info: ModelInfo,
    pub(crate) norm_eps: f32,
    pub(crate) rope: RopeSpec,
    /// Number of leading elements of a head that are rotated, even.
    pub(crate) rotary_width: usize,
    /// Biases on query, key and value.
    pub(crate) qkv_bias: bool,
    /// A bias on the output projection of attention.
    pub(crate) out_bias: bool,
    /// Biases on the matrices of an MLP and on the LM head.
    pub(crate) bias: bool,
    /// Norms of every query and key head before rotation.
    pub(crate) head_norms: bool,
    /// The LM head is the embedding only where no head is stored; `info` says it after the weights are known.
    pub(crate) head_if_stored: bool,
    /// The activation of MLPs and experts.
    pub(crate) gate: Epilogue,
    /// The experts, if some layers have them.
    pub(crate) experts: Option<ExpertSpec>,
    /// The additional properties of a canvas model.
    pub(crate) canvas: Option<CanvasSpec>,
}

/// The additional specification of a canvas model.
pub(crate) struct CanvasSpec {
    /// True for each layer with full attention; the others have a window.
    pub(crate) full: Vec<bool>,
    /// The rotation of layers with full attention.
    pub(crate) rope: RopeSpec,
    /// Number of its frequencies that are not 0.
    pub(crate) turning: usize,
    /// Logits are `cap * tanh(x / cap)`.
    pub(crate) cap: Option<f32>,
}

impl Spec {
    /// Biases on all projections of attention, if the key `attention_bias` is true.
    pub(crate) fn set_attention_bias(&mut self, config: &Keys) -> Result<(), LoadError> {
        self.qkv_bias = config.flag("attention_bias", false)?;
        self.out_bias = self.qkv_bias;
        Ok(())
    }
}

/// The frequencies of the rotation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeSpec {
    /// The base.
    pub(crate) theta: f64,
    /// Their change for long contexts, if any.
    pub(crate) scaling: Option<RopeScaling>,
    /// Factor of cosines and sines.
    pub(crate) magnitude: f32,
    /// The growth of queries at far positions, if any.
    pub(crate) growth: Option<QueryGrowth>,
}

impl RopeSpec {
    /// Frequencies of this base without any change.
    pub(crate) fn plain(theta: f64) -> Self {
        Self { theta, scaling: None, magnitude: 1.0, growth: None }
    }
}

/// The experts of a transformer.
pub(crate) struct ExpertSpec {
    /// Number of experts in a layer.
    pub(crate) count: usize,
    /// MLP width of an expert.
    pub(crate) width: usize,
    /// MLP width of the shared expert, if any.
    pub(crate) shared: Option<usize>,
    /// True for each layer with experts.
    pub(crate) layers: Vec<bool>,
    pub(crate) router: RouterSpec,
}

/// The choice and the weights of the experts of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RouterSpec {
    /// Number of experts chosen for a row.
    pub(crate) chosen: usize,
    pub(crate) function: RouterFunction,
    /// True if a correction per expert is added to the affinities before experts are chosen.
    pub(crate) bias: bool,
    /// The model's block length, if its attention is block-causal.
    pub(crate) block: Option<u32>,
}
