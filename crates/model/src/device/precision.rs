//! The number formats of a model on a device.

use crate::ModelInfo;
use kernels::device::PoolSizes;
use kernels::{Accelerator, KvDtype};

/// Slots of a page that every kernel accepts.
const PAGE: usize = 16;

/// The number format of a model's keys and values: `asked`, or that of its queries.
///
/// # Errors
/// The reason why the model has no device kernels.
pub(super) fn kv_dtype(info: &ModelInfo, asked: Option<KvDtype>) -> Result<KvDtype, String> {
    if info.rows.gate.is_some() {
        return Err("an adapter for some rows: the device has no operation for it".to_owned());
    }
    if info.rows.drafter.is_some_and(|drafter| drafter.heads != info.heads) {
        return Err("a DFlash drafter with other heads than its target's".to_owned());
    }
    let precision = Accelerator::precision_of(info.formats.matrices);
    let dtype = asked.unwrap_or(precision.kv_dtype());
    for kv in info.kv_sizes(dtype, PAGE, 1) {
        PoolSizes { precision, kv }.check().map_err(|error| error.0)?;
    }
    Ok(dtype)
}
