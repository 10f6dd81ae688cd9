//! The precision of a model's matrices on a device, and the bytes of an array in it.

use crate::ModelInfo;
use kernels::WeightDtype;
use kernels::device::{PoolSizes, Precision};

/// The row length of a padded array is a multiple of this.
const PAD: usize = 64;

/// The precision of a model's matrices.
///
/// # Errors
/// The reason why the model has no device kernels.
pub(crate) fn precision(info: &ModelInfo) -> Result<Precision, String> {
    if info.experts.is_some() {
        return Err(format!("{}: no CUDA kernels for experts", info.family));
    }
    let precision = match info.dtype {
        WeightDtype::F32 => Precision::F32,
        WeightDtype::Bf16 => Precision::Bf16,
        WeightDtype::Int8 => return Err("no CUDA kernels for int8".to_owned()),
    };
    let sizes = PoolSizes {
        precision,
        layers: info.layers,
        groups: info.groups,
        head_width: info.head_width,
        page: 1,
        pages: 1,
    };
    sizes.check().map_err(|error| error.to_string())?;
    Ok(precision)
}

/// Bytes of a padded array.
pub(crate) fn padded(precision: Precision, rows: usize, width: usize) -> usize {
    let stride = width.next_multiple_of(PAD);
    rows.saturating_mul(stride)
        .saturating_mul(precision.bytes())
}
