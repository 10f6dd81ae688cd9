//! The architectures, chosen by `config.json`.

mod llada;

use crate::config::Keys;
use crate::inputs::Inputs;
use crate::pool::KvPool;
use crate::profile::Clock;
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use candle_core::{Result, Tensor};

/// A loaded architecture.
pub(crate) trait Network: Send + Sync {
    /// Runs all layers on a batch, writing its keys and values: hidden states `[r, d]` before
    /// the final norm.
    fn hidden(&self, pass: &Pass<'_>, clock: &mut Clock<'_>) -> Result<Tensor>;

    /// Final norm and LM head: `[n, d]` to `[n, v]`.
    fn logits(&self, hidden: &Tensor, clock: &mut Clock<'_>) -> Result<Tensor>;
}

/// One batch and where its keys and values live.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) pool: &'a KvPool,
}

/// What is supported, as `architectures` / `model_type`.
const SUPPORTED: &str = "LLaDAModelLM / llada";

/// Loads the architecture that the configuration names.
pub(crate) fn load(
    config: &Keys,
    weights: &mut Weights,
) -> std::result::Result<(Box<dyn Network>, ModelInfo), LoadError> {
    let named = config
        .get("architectures")
        .and_then(|list| list.get(0)?.as_str());
    match (named, config.text("model_type")) {
        (Some("LLaDAModelLM"), _) | (None, Some("llada")) => {
            let (network, info) = llada::load(config, weights)?;
            Ok((Box::new(network), info))
        }
        (None, None) => Err(config.refuse("architectures", SUPPORTED)),
        (None, Some(_)) => Err(config.refuse("model_type", SUPPORTED)),
        (Some(_), _) => Err(config.refuse("architectures", SUPPORTED)),
    }
}
