//! DFlash drafters (arXiv 2602.06036): layers behind a target's own. Their keys and values of final tokens
//! come from the results of some of the target's layers and lie in the same pages; their rows are the
//! last final token and masks, under the target's embedding and LM head.

use super::load::Loader;
use super::names::Names;
use super::network::{Decoder, Drafter, Tap};
use super::qwen;
use crate::LoadError;
use crate::config::{DRAFTER, DrafterSpec};
use crate::memory::floats;
use crate::weights::DrafterFiles;
use kernels::{Epilogue, Numbers, Storage, Stored, StoredVector};
use std::sync::Arc;

const NAMES: Names = Names { layers: "layers", norm: "norm", ..qwen::NAMES };
/// The projection of the target's states, and the norm of the projected ones.
const PROJECTION: &str = "fc.weight";
const CONTEXT_NORM: &str = "hidden_norm";

/// An eps beside which no mean of squares counts: with its root as the weights, a norm leaves rows as they
/// are, in the number format of the inputs of products.
pub(super) const VAST: f32 = ROOT * ROOT;
const ROOT: f32 = (1_u64 << 50) as f32;

/// Loads a drafter behind the layers of `target`.
pub(super) fn load<S: Storage>(
    storage: &S,
    target: &Decoder<S>,
    files: &mut DrafterFiles,
    spec: &DrafterSpec,
) -> Result<Drafter<S>, LoadError> {
    let mut loader = Loader {
        storage,
        weights: &mut files.weights,
        spec: &spec.layers,
        names: &NAMES,
        published: &NAMES,
        first_kv: target.blocks.len(),
    };
    let taps = loader.taps(&spec.taps)?;
    let context_norm = loader.norm(CONTEXT_NORM.to_owned())?;
    let numbers = vec![ROOT; target.width];
    let root = loader.vector(StoredVector { count: target.width, numbers: &numbers })?;
    let blocks = (0..spec.info.layers).map(|number| loader.block(number));
    let blocks = blocks.collect::<Result<_, _>>()?;
    let network = Decoder {
        width: target.width,
        eps: loader.spec.norm_eps,
        embedding: Arc::clone(&target.embedding),
        rope_table: loader.rope_table()?,
        blocks,
        norm: loader.norm(NAMES.norm.to_owned())?,
        head: Arc::clone(&target.head),
        canvas: None,
        drafter: None,
    };
    // Weights that are not read would make other drafts.
    match files.weights.unused().into_iter().next() {
        None => Ok(Drafter { network, info: spec.layers.info.clone(), taps, context_norm, root }),
        Some(tensor) => Err(LoadError::Key {
            file: files.config.file().to_owned(),
            key: DRAFTER.to_owned(),
            expected: "a drafter with the tensors of DFlash alone".to_owned(),
            found: tensor,
        }),
    }
}

impl<S: Storage> Loader<'_, S> {
    /// The projection of the target's states, cut into the columns of each layer.
    fn taps(&mut self, layers: &[usize]) -> Result<Vec<Tap<S>>, LoadError> {
        let (d, count) = (self.spec.info.width, layers.len());
        let mut all = Vec::new();
        self.weights.append(PROJECTION, &[d, count * d], &mut all)?;
        let taps = layers.iter().enumerate().map(|(number, layer)| {
            let rows = all.chunks_exact(count * d);
            let own: Vec<f32> = rows.flat_map(|row| &row[number * d..][..d]).copied().collect();
            let matrix = Stored {
                shape: [d, d],
                numbers: Numbers::Floats(&own),
                bias: None,
                dtype: self.weights.dtype,
                epilogue: Epilogue::None,
            };
            let extra_bytes = floats(d.saturating_mul(d).saturating_mul(count + 1));
            let matrix = self.stored(PROJECTION, matrix, extra_bytes)?;
            Ok(Tap { layer: *layer, matrix })
        });
        taps.collect()
    }
}
