//! Loads linear layers; several stored matrices become one packed matrix.

use crate::LoadError;
use crate::memory::floats;
use crate::weights::Weights;
use kernels::{Epilogue, Linear, WeightDtype};

/// A stored matrix `[rows, k]`; the name is without `.weight`.
pub(crate) struct Matrix {
    pub(crate) name: String,
    pub(crate) rows: usize,
    /// Whether a `.bias [rows]` is stored with it.
    pub(crate) bias: bool,
}

/// One linear layer from several matrices over the same input of width `k`, stacked in order.
pub(crate) fn fused(
    weights: &mut Weights,
    k: usize,
    matrices: &[Matrix],
    epilogue: Epilogue,
) -> Result<Linear, LoadError> {
    let (stacked, bias) = stacked(weights, k, matrices)?;
    let rows = matrices.iter().map(|m| m.rows).sum::<usize>();
    let matrix = kernels::Matrix {
        weight: &stacked,
        k,
        bias: bias.as_deref(),
    };
    linear(weights, Rows::all(rows), matrix, weights.dtype, epilogue)
}

/// The rows of several matrices over an input of width `k`, stacked in order, and their biases.
pub(crate) fn stacked(
    weights: &mut Weights,
    k: usize,
    matrices: &[Matrix],
) -> Result<(Vec<f32>, Option<Vec<f32>>), LoadError> {
    let rows = matrices.iter().map(|m| m.rows).sum::<usize>();
    let biased = matrices.iter().any(|m| m.bias);
    // A configuration may state any sizes: room is made for tensors that are stored so.
    let is_stored = |m: &Matrix| weights.has(&format!("{}.weight", m.name), &[m.rows, k]);
    let room = match weights.reads && matrices.iter().all(is_stored) {
        true => rows * k,
        false => 0,
    };
    let (mut stacked, mut bias) = (Vec::with_capacity(room), Vec::new());
    for m in matrices {
        weights.append(&format!("{}.weight", m.name), &[m.rows, k], &mut stacked)?;
        if m.bias {
            bias.append(&mut weights.tensor(&format!("{}.bias", m.name), &[m.rows])?);
        } else if biased && weights.reads {
            bias.resize(bias.len() + m.rows, 0.0);
        }
    }
    Ok((stacked, biased.then_some(bias)))
}

/// The source of the LM head's matrix.
pub(crate) enum Head<'a> {
    /// A copy of the embedding table `[>= v, k]` in row-major order, and its number of rows.
    Tied(&'a [f32], usize),
    /// A stored matrix of at least `v` rows.
    Own(Matrix),
}

/// The LM head `[v, k]`. Rows beyond the vocabulary are padding and have no logit.
pub(crate) fn head(
    weights: &mut Weights,
    k: usize,
    vocab: usize,
    source: &Head<'_>,
) -> Result<Linear, LoadError> {
    let (dtype, plain) = (weights.dtype, Epilogue::None);
    // A survey has no rows.
    let cut = |values: &'_ [f32], length: usize| values.len().min(length);
    match source {
        Head::Tied(table, rows) => {
            let matrix = kernels::Matrix {
                weight: &table[..cut(table, vocab * k)],
                k,
                bias: None,
            };
            let rows = Rows {
                kept: vocab,
                read: *rows,
            };
            linear(weights, rows, matrix, dtype, plain)
        }
        Head::Own(m) => {
            let matrix = weights.tensor(&format!("{}.weight", m.name), &[m.rows, k])?;
            let bias = match m.bias {
                true => Some(weights.tensor(&format!("{}.bias", m.name), &[m.rows])?),
                false => None,
            };
            let matrix = kernels::Matrix {
                weight: &matrix[..cut(&matrix, vocab * k)],
                k,
                bias: bias.as_ref().map(|bias| &bias[..cut(bias, vocab)]),
            };
            let rows = Rows {
                kept: vocab,
                read: m.rows,
            };
            linear(weights, rows, matrix, dtype, plain)
        }
    }
}

/// Rows of a stored matrix, and how many of them are packed.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) kept: usize,
    pub(crate) read: usize,
}

impl Rows {
    /// All rows are packed.
    pub(crate) fn all(rows: usize) -> Self {
        Self {
            kept: rows,
            read: rows,
        }
    }
}

/// Packs the first rows of a matrix that is freed afterwards.
pub(crate) fn linear(
    weights: &mut Weights,
    rows: Rows,
    matrix: kernels::Matrix<'_>,
    dtype: WeightDtype,
    epilogue: Epilogue,
) -> Result<Linear, LoadError> {
    let k = matrix.k;
    let empty = kernels::Matrix {
        weight: &[],
        k,
        bias: None,
    };
    let packed = Linear::new(if weights.reads { matrix } else { empty }, dtype, epilogue);
    let packed = packed.map_err(|error| LoadError::Setup(error.to_string()))?;
    let bytes = match weights.reads {
        true => packed.bytes(),
        false => Linear::bytes_of((rows.kept, k), dtype, epilogue),
    };
    weights
        .memory
        .use_briefly(floats(rows.read.saturating_mul(k)).saturating_add(bytes));
    weights.memory.keep(bytes);
    Ok(packed)
}
