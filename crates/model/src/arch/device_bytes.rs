//! Bytes of a dense transformer on a device, computed from its configuration.

use super::layer::Layer;
use super::load::own_head;
use super::read;
use crate::config::Keys;
use crate::device::{padded, precision};
use crate::layers::Matrix;
use crate::memory::floats;
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};

/// Bytes that [`super::load_on`] allocates on a device, and the model's info. Reads no tensor.
pub(crate) fn device_bytes(
    config: &Keys,
    weights: &Weights,
) -> Result<(u64, ModelInfo), LoadError> {
    let (spec, names) = read(config, weights)?;
    let info = &spec.info;
    let precision = precision(info).map_err(LoadError::Setup)?;
    let fused = |k: usize, matrices: &[Matrix]| {
        let rows = matrices.iter().map(|matrix| matrix.rows).sum();
        let bias = matrices.iter().any(|matrix| matrix.bias);
        let weight = padded(precision, rows, k);
        weight.saturating_add(if bias { floats(rows) } else { 0 })
    };
    let layer = Layer {
        spec: &spec,
        names,
        number: 0,
    };
    let (d, inner) = (info.width, info.heads * info.head_width);
    let [gate, up, down] = layer.gated_matrices(names.mlp, info.mlp_width);
    let head_norms = match spec.head_norms {
        true => floats((info.heads + info.groups) * info.head_width),
        false => 0,
    };
    let layer_bytes = [
        floats(2 * d),
        head_norms,
        fused(d, &layer.qkv()),
        fused(inner, &[layer.out()]),
        fused(d, &[gate, up]),
        fused(info.mlp_width, &[down]),
    ];
    let own = Matrix {
        rows: info.vocab_size,
        bias: spec.bias && !info.tied,
        ..own_head(&spec, names)
    };
    let table = info.embedding_size.saturating_mul(d);
    let other_bytes = [
        table.saturating_mul(precision.bytes()),
        floats(d),
        fused(d, &[own]),
        floats(info.max_positions.saturating_mul(spec.rotary_width)),
    ];
    let sum = |sizes: &[usize]| sizes.iter().fold(0, |sum: u64, size| sum + *size as u64);
    let layers = sum(&layer_bytes).saturating_mul(info.layers as u64);
    Ok((layers.saturating_add(sum(&other_bytes)), spec.info))
}
