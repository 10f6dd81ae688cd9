//! The precision of a model's matrices on a device.

use crate::ModelInfo;
use kernels::Accelerator;
use kernels::device::{PoolSizes, Precision};

/// The precision of a model's matrices.
///
/// # Errors
/// The reason why the model has no device kernels.
pub(super) fn precision(info: &ModelInfo) -> Result<Precision, String> {
    if info.rows.gate.is_some() {
        return Err("an adapter for some rows: the device has no operation for it".to_owned());
    }
    if info.rows.drafter.is_some_and(|drafter| drafter.heads != info.heads) {
        return Err("a DFlash drafter with other heads than its target's".to_owned());
    }
    let precision = Accelerator::precision_of(info.formats.matrices);
    for sizes in info.kv_sizes(precision.kv_dtype(), 1, 1) {
        PoolSizes::of(&sizes, precision).check().map_err(|error| error.0)?;
    }
    Ok(precision)
}
