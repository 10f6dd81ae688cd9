//! What an architecture computes in one forward pass.

use crate::inputs::Inputs;
use crate::pool::KvPool;
use crate::profile::Clock;
use candle_core::{Result, Tensor};

/// A loaded architecture.
pub(crate) trait Network: Send + Sync {
    /// Runs all layers on a batch and writes its keys and values. Returns the hidden states
    /// `[r, d]` before the final norm.
    fn hidden(&self, pass: &Pass<'_>, clock: &mut Clock<'_>) -> Result<Tensor>;

    /// Final norm and LM head: `[n, d]` to `[n, v]`.
    fn logits(&self, hidden: &Tensor, clock: &mut Clock<'_>) -> Result<Tensor>;
}

/// One batch and the pool with its keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) pool: &'a KvPool,
}
