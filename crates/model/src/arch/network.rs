//! The stored weights of a transformer and of its drafter.

use super::block::{Block, CanvasParts};
use crate::ModelInfo;
use kernels::Storage;
use std::sync::Arc;

/// The stored weights of a transformer: embedding, layers, final norm, LM head.
pub(crate) struct Decoder<S: Storage> {
    /// Model width `d`.
    pub(super) width: usize,
    pub(super) eps: f32,
    pub(super) embedding: Arc<S::Table>,
    pub(super) rope_table: S::RopeTable,
    pub(super) blocks: Vec<Block<S>>,
    pub(super) norm: S::Vector,
    pub(super) head: Arc<S::Matrix>,
    /// The additional properties of a canvas model.
    pub(super) canvas: Option<CanvasParts<S>>,
    /// A drafter, which reads the rows of open blocks.
    pub(super) drafter: Option<Box<Drafter<S>>>,
}

/// A DFlash drafter.
pub(crate) struct Drafter<S: Storage> {
    /// Its layers between the target's embedding and LM head.
    pub(super) network: Decoder<S>,
    pub(super) info: ModelInfo,
    pub(super) taps: Vec<Tap<S>>,
    pub(super) context_norm: S::Vector,
    /// The root of [`VAST`](super::dflash::VAST), for each number of a state.
    pub(super) root: S::Vector,
}

/// The part `[d, d]` of the projection that reads the results of one of the target's layers.
pub(super) struct Tap<S: Storage> {
    pub(super) layer: usize,
    pub(super) matrix: S::Matrix,
}
