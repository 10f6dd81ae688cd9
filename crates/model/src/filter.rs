//! The weights of a learned filter (Learn2PD), to and from a safetensors file.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensorError, TensorView, serialize};

use crate::weights::Weights;
use crate::{Files, LoadError};

const FIRST: &str = "0.weight";
const FIRST_BIAS: &str = "0.bias";
const SECOND: &str = "2.weight";
const SECOND_BIAS: &str = "2.bias";

/// Two linear layers B -> H -> B with ReLU between: the confidences of a block's B positions in,
/// one logit per position out. Values are row by row, `[outputs, inputs]`.
///
/// A file holds them in BF16, F16 or F32 under the names that a PyTorch
/// `Sequential(Linear(B, H), ReLU(), Linear(H, B))` gives them: `0.weight` `[H, B]`, `0.bias`
/// `[H]`, `2.weight` `[B, H]`, `2.bias` `[B]`, and nothing else. B and H are those of `0.weight`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterWeights {
    /// `0.weight`: `[H, B]`.
    pub first: Vec<f32>,
    /// `0.bias`: `[H]`.
    pub first_bias: Vec<f32>,
    /// `2.weight`: `[B, H]`.
    pub second: Vec<f32>,
    /// `2.bias`: `[B]`.
    pub second_bias: Vec<f32>,
}

impl FilterWeights {
    /// The filter in the file at `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::open(&Files::folder(folder.unwrap_or(Path::new("."))), &name)
    }

    /// The filter in the file `name`.
    ///
    /// # Errors
    /// A file that is not there or no safetensors file; a tensor that is missing, has another
    /// shape or type, holds a NaN or an infinity, or belongs to no filter.
    pub fn open(files: &Files, name: &str) -> Result<Self, LoadError> {
        let mut weights = Weights::open_single(files, name)?;
        let refuse = |tensor: &str, expected, found| {
            Err(LoadError::Filter {
                file: name.to_owned(),
                tensor: tensor.to_owned(),
                expected,
                found,
            })
        };
        let (hidden, size) = match weights.shape(FIRST) {
            Some(&[hidden, size]) if hidden * size > 0 => (hidden, size),
            found => {
                let found = found.map_or("none".to_owned(), |shape| format!("shape {shape:?}"));
                return refuse(FIRST, "a matrix [hidden, block length]", found);
            }
        };
        let filter = Self {
            first: weights.tensor(FIRST, &[hidden, size])?,
            first_bias: weights.tensor(FIRST_BIAS, &[hidden])?,
            second: weights.tensor(SECOND, &[size, hidden])?,
            second_bias: weights.tensor(SECOND_BIAS, &[size])?,
        };
        match weights.unused().first() {
            Some(tensor) => refuse(tensor, "two linear layers, 0 and 2", "a third".to_owned()),
            None => Ok(filter),
        }
    }

    /// The file of this filter, in F32.
    ///
    /// # Errors
    /// If the layers do not have B x H values.
    pub fn to_file(&self) -> Result<Vec<u8>, SafeTensorError> {
        let (size, hidden) = (self.second_bias.len(), self.first_bias.len());
        let tensors = [
            (FIRST, vec![hidden, size], &self.first),
            (FIRST_BIAS, vec![hidden], &self.first_bias),
            (SECOND, vec![size, hidden], &self.second),
            (SECOND_BIAS, vec![size], &self.second_bias),
        ];
        let tensors = tensors.map(|(name, shape, values)| {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            (name, shape, bytes)
        });
        let mut views = Vec::with_capacity(tensors.len());
        for (name, shape, bytes) in &tensors {
            views.push((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?));
        }
        serialize(views, None)
    }
}
