//! Loads a transformer of any family into any storage.

use super::names::Names;
use super::network::Decoder;
use crate::LoadError;
use crate::config::{MAX_ROPE_ANGLES, Spec};
use crate::gguf::{DIVISORS, check_divisors};
use crate::weights::Weights;
use kernels::{RopeSpec, Storage};
use std::sync::Arc;

/// Loads one transformer.
pub(super) struct Loader<'a, S: Storage> {
    pub(super) storage: &'a S,
    pub(super) weights: &'a mut Weights,
    pub(super) spec: &'a Spec,
    pub(super) names: &'a Names,
    /// The names in safetensors, which adapters have.
    pub(super) published: &'a Names,
    /// The number of the first layer among the keys and values.
    pub(super) first_kv: usize,
}

impl<S: Storage> Loader<'_, S> {
    /// Loads all tensors: embedding and head, then layer by layer.
    pub(super) fn decoder(mut self) -> Result<Decoder<S>, LoadError> {
        let info = &self.spec.info;
        let d = info.width;
        let rope_table = self.rope_table()?;
        let canvas = self.spec.canvas.as_ref().zip(info.canvas.as_ref());
        let source = self.embedding(canvas.is_some())?;
        let tied = match info.vocabulary.tied {
            true => {
                // Some exports store the tied head too.
                self.weights.ignore(&format!("{}.weight", self.names.head));
                Some(self.tied_head(&source)?)
            }
            false => None,
        };
        let parts = match canvas {
            Some((spec, canvas)) => Some(self.canvas_parts(spec, canvas, &source)?),
            None => None,
        };
        let embedding = self.table(source)?;
        // Before the layers, because this largest matrix needs memory in f32 while it is packed.
        let head = match tied {
            Some(head) => head,
            None => self.own_head()?,
        };
        let blocks = (0..info.layers).map(|number| match (canvas, &self.spec.experts) {
            (Some((spec, canvas)), Some(experts)) => {
                self.canvas_block(number, spec, canvas, experts)
            }
            _ => self.block(number),
        });
        let blocks = blocks.collect::<Result<_, _>>()?;
        let norm = self.norm(self.names.norm.to_owned())?;
        Ok(Decoder {
            width: d,
            eps: self.spec.norm_eps,
            embedding: Arc::new(embedding),
            rope_table,
            blocks,
            norm,
            head: Arc::new(head),
            canvas: parts,
            drafter: None,
        })
    }

    pub(super) fn rope_table(&mut self) -> Result<S::RopeTable, LoadError> {
        let width = self.spec.rotary_width;
        let divisors = self.divisors(width / 2)?;
        let rope = &self.spec.rope;
        self.rope_table_of(RopeSpec {
            scaling: rope.scaling.clone(),
            magnitude: rope.magnitude,
            divisors,
            growth: rope.growth,
            ..RopeSpec::plain(rope.theta, width, self.spec.info.max_positions)
        })
    }

    /// The divisors of the rotary frequencies in a GGUF file; empty if it has no such tensor.
    fn divisors(&mut self, count: usize) -> Result<Vec<f32>, LoadError> {
        let Some(file) = self.weights.as_gguf().map(|gguf| gguf.file.clone()) else {
            return Ok(Vec::new());
        };
        if self.spec.canvas.is_some() {
            // They are the number of frequencies that turn, in layers with full attention.
            self.weights.ignore(DIVISORS);
            return Ok(Vec::new());
        }
        if self.weights.shape(DIVISORS).is_none() {
            return Ok(Vec::new());
        }
        let divisors = self.weights.tensor(DIVISORS, &[count])?;
        check_divisors(&file, &divisors)?;
        Ok(divisors)
    }

    /// The rotary angles of some layers.
    pub(super) fn rope_table_of(&mut self, spec: RopeSpec) -> Result<S::RopeTable, LoadError> {
        let RopeSpec { width, positions, .. } = spec;
        if width.saturating_mul(positions) > MAX_ROPE_ANGLES {
            return Err(LoadError::Setup(format!(
                "the configuration: expected at most {MAX_ROPE_ANGLES} rotary angles, found \
                 {positions} positions times a head width of {width}"
            )));
        }
        let rope_table = self.storage.rope_table(spec);
        self.count(0);
        rope_table.map_err(failed)
    }
}

pub(super) fn failed(error: candle_core::Error) -> LoadError {
    LoadError::Setup(error.to_string())
}
