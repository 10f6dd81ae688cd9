//! A dense model on a device.

use super::{DeviceTransformer, precision, sizing};
use crate::arch::load_on;
use crate::{Checkpoint, LoadError, ModelInfo};
use kernels::device::{Device, PoolSizes};

/// A dense model on a device.
pub struct DeviceModel {
    pub(super) device: Device,
    pub(super) transformer: DeviceTransformer,
    pub(super) info: ModelInfo,
    pub(super) warnings: Vec<String>,
    /// Bytes that were free before the model was loaded.
    pub(super) free: u64,
}

impl DeviceModel {
    /// The reason why a model has no device kernels, `None` if it has.
    #[must_use]
    pub fn unfit(info: &ModelInfo) -> Option<String> {
        precision(info).err()
    }

    /// Copies the weights to the device, tensor by tensor.
    ///
    /// # Errors
    /// As [`crate::Model::load`]; if the model has experts, int8 matrices or a head width without
    /// kernels, or the device is out of memory.
    pub fn load(device: &Device, mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        let free = sizing::free(device)?;
        let (transformer, info) = load_on(device, &checkpoint.config, &mut checkpoint.weights)?;
        let (info, warnings) = checkpoint.finish(info);
        Ok(Self {
            free,
            device: device.clone(),
            transformer,
            info,
            warnings,
        })
    }

    /// The model's info.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Warnings about the checkpoint and the device, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of keys and values per position in the dtype of the matrices, all layers together.
    #[must_use]
    pub fn kv_bytes_per_position(&self) -> usize {
        self.sizes(1, 1).slot_bytes()
    }

    pub(super) fn sizes(&self, page: usize, pages: usize) -> PoolSizes {
        PoolSizes {
            precision: self.transformer.precision(),
            layers: self.info.layers,
            groups: self.info.groups,
            head_width: self.info.head_width,
            page,
            pages,
        }
    }
}
