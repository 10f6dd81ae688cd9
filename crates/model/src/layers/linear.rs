//! Loading linear layers: several stored matrices become one packed matrix.

use crate::LoadError;
use crate::weights::Weights;
use kernels::{Epilogue, Linear, WeightDtype};

/// A stored matrix `[rows, k]`, named without its `.weight`.
pub(crate) struct Matrix {
    pub(crate) name: String,
    pub(crate) rows: usize,
    /// Whether a `.bias [rows]` is stored beside it.
    pub(crate) bias: bool,
}

/// One layer of several matrices over the same input of width `k`, stacked in order.
pub(crate) fn fused(
    weights: &mut Weights,
    k: usize,
    matrices: &[Matrix],
    epilogue: Epilogue,
) -> Result<Linear, LoadError> {
    let rows = matrices.iter().map(|m| m.rows).sum::<usize>();
    let (mut stacked, mut bias) = (Vec::with_capacity(rows * k), Vec::new());
    for m in matrices {
        stacked.append(&mut weights.tensor(&format!("{}.weight", m.name), &[m.rows, k])?);
        if m.bias {
            bias.append(&mut weights.tensor(&format!("{}.bias", m.name), &[m.rows])?);
        } else {
            bias.resize(bias.len() + m.rows, 0.0);
        }
    }
    let bias = matrices.iter().any(|m| m.bias).then_some(bias.as_slice());
    let matrix = kernels::Matrix {
        weight: &stacked,
        k,
        bias,
    };
    linear(matrix, weights.dtype, epilogue)
}

/// Where the LM head's matrix comes from.
pub(crate) enum Head<'a> {
    /// The embedding table, `[>= v, k]` row by row.
    Tied(&'a [f32]),
    /// A stored matrix of at least `v` rows.
    Own(Matrix),
}

/// The LM head, `[v, k]`: rows beyond the vocabulary are padding and have no logit.
pub(crate) fn head(
    weights: &mut Weights,
    k: usize,
    vocab: usize,
    source: &Head<'_>,
) -> Result<Linear, LoadError> {
    match source {
        Head::Tied(table) => {
            let matrix = kernels::Matrix {
                weight: &table[..vocab * k],
                k,
                bias: None,
            };
            linear(matrix, weights.dtype, Epilogue::None)
        }
        Head::Own(m) => {
            let matrix = weights.tensor(&format!("{}.weight", m.name), &[m.rows, k])?;
            let bias = match m.bias {
                true => Some(weights.tensor(&format!("{}.bias", m.name), &[m.rows])?),
                false => None,
            };
            let matrix = kernels::Matrix {
                weight: &matrix[..vocab * k],
                k,
                bias: bias.as_ref().map(|bias| &bias[..vocab]),
            };
            linear(matrix, weights.dtype, Epilogue::None)
        }
    }
}

/// Packs a matrix.
pub(crate) fn linear(
    matrix: kernels::Matrix<'_>,
    dtype: WeightDtype,
    epilogue: Epilogue,
) -> Result<Linear, LoadError> {
    Linear::new(matrix, dtype, epilogue).map_err(|error| LoadError::Setup(error.to_string()))
}
