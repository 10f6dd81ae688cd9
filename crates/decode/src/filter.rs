//! A small trained network that decides which masks are correct (Learn2PD, arXiv 2509.25188).

use alloc::vec;
use alloc::vec::Vec;

use crate::coordinates::as_count;

/// A network B -> H -> B with biases and ReLU between: the confidences of a block's positions in,
/// one logit per position out. The default accepts nothing and has size 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    size: usize,
    hidden: usize,
    weights: Weights,
}

/// Two linear layers, weights row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// [H, B].
    pub first: Vec<f32>,
    /// [H].
    pub first_bias: Vec<f32>,
    /// [B, H].
    pub second: Vec<f32>,
    /// [B].
    pub second_bias: Vec<f32>,
}

/// Weights that do not form a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Values that the first and the second layer should have.
    pub expected: usize,
    /// Values that one of them has.
    pub found: usize,
}

impl core::fmt::Display for FilterError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { expected, found } = self;
        write!(out, "a layer of the filter needs {expected} weights, found {found}")
    }
}

impl core::error::Error for FilterError {}

impl Filter {
    /// A filter of the given weights; B and H are the lengths of the biases.
    ///
    /// # Errors
    /// If a layer has not B x H weights, or there are none.
    pub fn new(weights: Weights) -> Result<Self, FilterError> {
        let (size, hidden) = (weights.second_bias.len(), weights.first_bias.len());
        let expected = size * hidden;
        let layers = [&weights.first, &weights.second];
        match layers.iter().find(|layer| layer.len() != expected || expected == 0) {
            Some(layer) => Err(FilterError { expected, found: layer.len() }),
            None => Ok(Self { size, hidden, weights }),
        }
    }

    /// B: positions of a block.
    pub fn size(&self) -> u32 {
        as_count(self.size)
    }

    /// One logit per position of `confidences`, both of length B, into `logits`.
    pub fn logits(&self, confidences: &[f32], logits: &mut Vec<f32>) {
        let Weights { first, first_bias, second, second_bias } = &self.weights;
        let mut hidden = vec![0.0; self.hidden];
        for (unit, (row, bias)) in first.chunks(self.size).zip(first_bias).enumerate() {
            hidden[unit] = (dot(row, confidences) + bias).max(0.0);
        }
        let rows = second.chunks(self.hidden.max(1)).zip(second_bias);
        logits.clear();
        logits.extend(rows.map(|(row, bias)| dot(row, &hidden) + bias));
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
