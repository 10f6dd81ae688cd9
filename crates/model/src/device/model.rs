//! A model on a device.

use super::failed;
use super::precision::kv_dtype;
use crate::arch::{self, Decoder};
use crate::{Checkpoint, LoadError, ModelInfo};
use kernels::device::Device;
use kernels::{Accelerator, KvDtype, KvSizes};

/// A model on a device.
pub struct DeviceModel {
    pub(super) backend: Accelerator,
    pub(super) decoder: Decoder<Accelerator>,
    pub(super) info: ModelInfo,
    pub(super) warnings: Vec<String>,
    /// Bytes that were free before the model was loaded.
    pub(super) free: u64,
}

impl DeviceModel {
    /// The reason why a model with keys and values in a format, `None` for that of its queries, has no device
    /// kernels; `None` if it has.
    pub fn unfit(info: &ModelInfo, kv: Option<KvDtype>) -> Option<String> {
        kv_dtype(info, kv).err()
    }

    /// Copies the weights to the device, tensor by tensor. Blocks of a GGUF file stay packed; other matrices
    /// of such a file are stored in bf16. For a device that stores no numbers, tensors are checked and not
    /// read.
    ///
    /// # Errors
    /// As [`crate::Model::load`]; if the model has experts that share a pool or a head width without
    /// kernels, or the device is out of memory.
    pub fn load(device: &Device, mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        if device.is_counting() {
            let dtype = checkpoint.weights.dtype;
            return checkpoint.count(dtype, |checkpoint| Self::load_from(device, checkpoint));
        }
        Self::load_from(device, &mut checkpoint)
    }

    /// As [`Self::load`]; the checkpoint can be loaded again.
    pub(super) fn load_from(
        device: &Device,
        checkpoint: &mut Checkpoint,
    ) -> Result<Self, LoadError> {
        let free = free(device)?;
        let Checkpoint { config, weights, drafter } = &mut *checkpoint;
        let info = arch::info(config, weights, drafter.as_deref())?;
        let kv = kv_dtype(&info, weights.kv_dtype).map_err(LoadError::Setup)?;
        let backend = Accelerator::new(device, info.formats.matrices);
        let (decoder, mut info) = arch::load(&backend, config, weights, drafter.as_deref_mut())?;
        info.formats.kv = kv;
        let (info, mut warnings) = checkpoint.finish(info);
        let refused = device.bulk_refusal();
        warnings
            .extend(refused.map(|reason| format!("products load without bulk copies: {reason}")));
        let refused = device.overlap_refusal();
        warnings.extend(refused.map(|reason| format!("launches do not overlap: {reason}")));
        Ok(Self { free, backend, decoder, info, warnings })
    }

    /// The model's info.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Warnings about the checkpoint and the device, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of keys and values per position, all layers together with scales, and of a canvas model's mean
    /// embedding.
    pub fn kv_bytes_per_position(&self) -> usize {
        self.info.kv_bytes_per_position()
    }

    pub(super) fn kv_sizes(&self, page: usize, pages: usize) -> Vec<KvSizes> {
        self.info.kv_sizes(self.info.formats.kv, page, pages)
    }
}

/// Bytes of the device that are free now.
pub(super) fn free(device: &Device) -> Result<u64, LoadError> {
    Ok(device.memory().map_err(failed)?.0)
}
