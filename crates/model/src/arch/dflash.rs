//! DFlash drafters (arXiv 2602.06036): layers behind a target's own. Their keys and values of final tokens
//! come from the results of some of the target's layers and lie in the same pages; their rows are the
//! last final token and masks, under the target's embedding and LM head.

use super::decoder::Decoder;
use super::load::Loader;
use super::names::Names;
use super::qwen;
use super::work::{ContextArrays, Work};
use crate::checkpoint::DrafterPart;
use crate::config::{DRAFTER, DrafterSpec};
use crate::memory::floats;
use crate::{LoadError, ModelInfo};
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{Backend, Epilogue, Numbers, Pass, Selection, Storage, Stored};
use std::sync::Arc;

const NAMES: Names = Names { layers: "layers", norm: "norm", ..qwen::NAMES };
/// The projection of the target's states, and the norm of the projected ones.
const PROJECTION: &str = "fc.weight";
const CONTEXT_NORM: &str = "hidden_norm";

/// A drafter.
pub(crate) struct Drafter<S: Storage> {
    /// Its layers between the target's embedding and LM head.
    pub(super) network: Decoder<S>,
    info: ModelInfo,
    taps: Vec<Tap<S>>,
    context_norm: S::Vector,
}

/// The part `[d, d]` of the projection that reads the results of one of the target's layers.
struct Tap<S: Storage> {
    layer: usize,
    matrix: S::Matrix,
}

/// Loads a drafter behind the layers of `target`.
pub(super) fn load<S: Storage>(
    storage: &S,
    target: &Decoder<S>,
    part: &mut DrafterPart,
    spec: &DrafterSpec,
) -> std::result::Result<Drafter<S>, LoadError> {
    let mut loader = Loader {
        storage,
        weights: &mut part.weights,
        spec: &spec.layers,
        names: &NAMES,
        published: &NAMES,
        first_kv: target.blocks.len(),
    };
    let taps = loader.taps(&spec.taps)?;
    let context_norm = loader.norm(CONTEXT_NORM.to_owned())?;
    let blocks = (0..spec.info.layers).map(|number| loader.block(number));
    let blocks = blocks.collect::<std::result::Result<_, _>>()?;
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
    match part.weights.unused().into_iter().next() {
        None => Ok(Drafter { network, info: spec.layers.info.clone(), taps, context_norm }),
        Some(tensor) => Err(LoadError::Key {
            file: part.config.file().to_owned(),
            key: DRAFTER.to_owned(),
            expected: "a drafter with the tensors of DFlash alone".to_owned(),
            found: tensor,
        }),
    }
}

impl<S: Storage> Loader<'_, S> {
    /// The projection of the target's states, cut into the columns of each layer.
    fn taps(&mut self, layers: &[usize]) -> std::result::Result<Vec<Tap<S>>, LoadError> {
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

impl<B: Backend> Decoder<B> {
    /// The network of the rows of open blocks, and its sizes.
    pub(crate) fn drafter(&self) -> Option<(&Self, &ModelInfo)> {
        self.drafter.as_ref().map(|drafter| (&drafter.network, &drafter.info))
    }
}

impl<B: Backend> Drafter<B> {
    /// Adds the projected result of one of the target's layers, if the drafter reads it.
    pub(super) fn tap(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        layer: usize,
        work: &mut Work<B>,
    ) -> Result<()> {
        let Some(number) = self.taps.iter().position(|tap| tap.layer == layer) else {
            return Ok(());
        };
        let Some(ContextArrays { states, .. }) = &mut work.context else {
            bail!("the target of a drafter has arrays for its states");
        };
        let (rows, matrix) = (backend.rows(pass), &self.taps[number].matrix);
        match number {
            0 => backend.linear(matrix, &work.x, rows, states),
            _ => backend.linear_add(matrix, &work.x, rows, states),
        }
    }

    /// Writes the keys and values of the target's rows in all layers of the drafter.
    pub(super) fn write(&self, backend: &B, pass: &Pass<'_, B>, work: &mut Work<B>) -> Result<()> {
        let Some(ContextArrays { states, heads }) = &mut work.context else {
            bail!("the target of a drafter has arrays for its states");
        };
        let rows = backend.rows(pass);
        let all = RowSet::First(rows);
        let norm = self.network.norm(&self.context_norm);
        let input = Selection { of: &*states, rows: &all };
        backend.norm(input, pass, norm, &mut work.normed)?;
        for block in &self.network.blocks {
            backend.linear(&block.qkv, &work.normed, rows, &mut heads.qkv)?;
            let attention = self.network.attention(block);
            backend.split(&attention, pass, &mut heads.qkv, &mut heads.q)?;
        }
        Ok(())
    }
}
