//! Loads a transformer of any family into any storage.

use super::block::HeadSizes;
use super::decoder::Decoder;
use super::names::Names;
use super::tensors::failed;
use crate::LoadError;
use crate::config::{MOST_ANGLES, Spec};
use crate::weights::Weights;
use kernels::{AngleSpec, Storage, Table};

/// Loads one transformer.
pub(super) struct Loader<'a, S: Storage> {
    pub(super) storage: &'a S,
    pub(super) weights: &'a mut Weights,
    pub(super) spec: &'a Spec,
    pub(super) names: &'a Names,
}

impl<S: Storage> Loader<'_, S> {
    /// Loads all tensors, layer by layer.
    pub(super) fn decoder(mut self) -> Result<Decoder<S>, LoadError> {
        let info = &self.spec.info;
        let d = info.width;
        let angles = self.angles()?;
        let name = format!("{}.weight", self.names.embedding);
        let numbers = self.weights.tensor(&name, &[info.embedding_size, d])?;
        let tied = match info.tied {
            true => {
                // Some exports store the tied head too.
                self.weights.ignore(&format!("{}.weight", self.names.head));
                Some(self.tied_head(&numbers)?)
            }
            false => None,
        };
        let table = Table {
            rows: info.embedding_size,
            width: d,
            numbers,
        };
        let embedding = self.storage.table(table).map_err(failed)?;
        self.count(0);
        let blocks = (0..info.layers).map(|number| self.block(number));
        let blocks = blocks.collect::<Result<_, _>>()?;
        let norm = self.norm(self.names.norm.to_owned())?;
        let head = match tied {
            Some(head) => head,
            None => self.own_head()?,
        };
        Ok(Decoder {
            heads: HeadSizes {
                heads: info.heads,
                groups: info.groups,
                head_width: info.head_width,
            },
            eps: self.spec.norm_eps,
            embedding,
            angles,
            blocks,
            norm,
            head,
        })
    }

    fn angles(&mut self) -> Result<S::Angles, LoadError> {
        let (width, positions) = (self.spec.rotary_width, self.spec.info.max_positions);
        if width.saturating_mul(positions) > MOST_ANGLES {
            return Err(LoadError::Setup(format!(
                "the configuration: expected at most {MOST_ANGLES} rotary angles, found \
                 {positions} positions times a head width of {width}"
            )));
        }
        let angles = self.storage.angles(AngleSpec {
            theta: self.spec.rope.theta,
            width,
            positions,
            scaling: self.spec.rope.scaling,
        });
        self.count(0);
        angles.map_err(failed)
    }
}
