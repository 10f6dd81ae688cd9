//! The memory of a model on a device: its weights, the arrays of the largest step, and the KV pool
//! in the rest.
//!
//! The arrays of a step are allocated before the KV pool, for the largest possible step: the row
//! budget, or the longest sequence in one forward pass if that has more rows. Later steps allocate
//! nothing and so cannot run out of memory. Exception: a sequence whose forward tries several
//! branches over all of its positions (`draft_verify` without a cache) may have more rows than
//! that; its arrays are then allocated from the memory that the pool leaves free.

use super::{DeviceExecutor, DeviceModel, failed};
use crate::{Checkpoint, LoadError, WeightDtype};
use kernels::device::Device;

/// One part in `SLACK` of the free memory stays unused, because drivers round allocations up.
const SLACK: u64 = 100;

/// Memory for keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvMemory {
    /// A fixed number of bytes.
    Bytes(u64),
    /// A share of the device's memory, in 0..=1, minus weights and the arrays of the largest step.
    Share(f64),
}

/// Sizes of an executor on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Slots per KV page, at least 1.
    pub page_size: u32,
    /// Row budget of a step. A single sequence may have as many rows as it has positions.
    pub rows: u32,
    /// Maximum positions of a sequence.
    pub positions: u32,
    /// Maximum sequences of a step.
    pub sequences: u32,
    /// Memory for keys and values.
    pub kv: KvMemory,
}

impl DeviceConfig {
    /// Pages of the longest sequence.
    pub(super) fn least_pages(&self) -> u32 {
        self.positions.div_ceil(self.page_size.max(1))
    }

    /// Maximum bytes that a model may take of a device with `free` of `total` bytes: the free
    /// bytes, limited by the configured share.
    pub fn allowance(&self, free: u64, total: u64) -> u64 {
        match self.kv {
            KvMemory::Bytes(_) => free,
            KvMemory::Share(share) => free.min(share_of(total, share)),
        }
    }
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Matrices, embedding table, norms, rotary angles.
    pub weights: u64,
    /// Arrays of the largest step.
    pub step: u64,
    /// Keys and values.
    pub kv: u64,
}

impl DeviceMemory {
    /// The bytes that loading a checkpoint with matrices in `dtype` and [`DeviceExecutor::new`]
    /// allocate, counted by doing both on a device that only counts. `kv` is the configured number of
    /// bytes, rounded down to pages; with [`KvMemory::Share`] it is the minimum, one sequence of
    /// maximum length. The checkpoint is limited to the configured positions.
    ///
    /// # Errors
    /// If the configuration is invalid, or the model has no device kernels.
    pub fn needed(
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
        config: &DeviceConfig,
    ) -> Result<Self, LoadError> {
        let device = Device::counting();
        checkpoint.limit(Some(config.positions as usize));
        let model =
            checkpoint.count(dtype, |checkpoint| DeviceModel::load_from(&device, checkpoint))?;
        let page = page_bytes(&model, config);
        let kv = match config.kv {
            KvMemory::Bytes(bytes) => bytes,
            KvMemory::Share(_) => u64::from(config.least_pages()).saturating_mul(page),
        };
        let sizes = DeviceConfig { kv: KvMemory::Bytes(kv), ..*config };
        Ok(DeviceExecutor::new(model, sizes)?.memory())
    }

    /// The total.
    pub fn sum(&self) -> u64 {
        self.weights.saturating_add(self.step).saturating_add(self.kv)
    }
}

/// The number of pages of the KV pool, after weights and step arrays were allocated.
///
/// # Errors
/// If the longest sequence or the configured number of bytes does not fit.
pub(super) fn pages(model: &DeviceModel, config: &DeviceConfig) -> Result<u32, LoadError> {
    let (free, total) = model.backend.device().memory().map_err(failed)?;
    let page = page_bytes(model, config);
    let needed = u64::from(config.least_pages()).saturating_mul(page);
    let bytes = match config.kv {
        KvMemory::Bytes(bytes) => bytes,
        KvMemory::Share(share) => {
            let taken = model.free.saturating_sub(free);
            let left = share_of(total, share).saturating_sub(taken);
            left.min((free - free / SLACK).max(needed))
        }
    };
    let most = u32::MAX / config.page_size.max(1);
    let pages = u32::try_from(bytes / page.max(1)).unwrap_or(u32::MAX);
    if pages < config.least_pages() {
        return Err(LoadError::Setup(format!(
            "KV pages: expected at least {needed} bytes for one sequence of {} positions, found \
             {bytes}",
            config.positions,
        )));
    }
    if u64::from(pages).saturating_mul(page) > free {
        return Err(LoadError::Setup(format!(
            "KV pages: expected at most the {free} free bytes, found {bytes}"
        )));
    }
    Ok(pages.min(most))
}

/// Bytes of a KV page.
fn page_bytes(model: &DeviceModel, config: &DeviceConfig) -> u64 {
    model.kv_bytes_per_position() as u64 * u64::from(config.page_size)
}

/// A share of `bytes`, rounded down.
fn share_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn a_share_is_at_most_the_whole() {
        assert_eq!(share_of(u64::MAX, f64::NAN), 0);
        assert_eq!(share_of(1000, 7.0), 1000);
    }
}
