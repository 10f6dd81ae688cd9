//! The weights of a learned filter (Learn2PD): reading and writing safetensors files.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensorError, TensorView, serialize};

use crate::weights::Weights;
use crate::{Files, LoadError};

const FIRST: &str = "0.weight";
const FIRST_BIAS: &str = "0.bias";
const SECOND: &str = "2.weight";
const SECOND_BIAS: &str = "2.bias";

/// Two linear layers B -> H -> B with a ReLU between them. The input is the confidences of a
/// block's B positions, the output one logit per position. Values are in row-major order
/// `[outputs, inputs]`.
///
/// A file contains them in BF16, F16 or F32 with the names of a PyTorch
/// `Sequential(Linear(B, H), ReLU(), Linear(H, B))`: `0.weight` `[H, B]`, `0.bias` `[H]`,
/// `2.weight` `[B, H]`, `2.bias` `[B]`, and no other tensor. `0.weight` determines B and H.
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
    /// Reads the filter in the file at `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::open(&Files::folder(folder.unwrap_or(Path::new("."))), &name)
    }

    /// Reads the filter in the file `name`.
    ///
    /// # Errors
    /// If the file is missing or not a safetensors file, or a tensor is missing, has a wrong shape
    /// or type, contains a NaN or an infinity, or does not belong to a filter.
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
            Some(tensor) => {
                refuse(tensor, "only the linear layers 0 and 2", "another tensor".to_owned())
            }
            None => Ok(filter),
        }
    }

    /// The content of a safetensors file with this filter in F32.
    ///
    /// # Errors
    /// If the number of values does not match B x H.
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
