//! Memory for the partial sums of divided products.

use super::array::Buffer;
use super::launch::MOST_DIVIDED;
use super::{Device, Result, refuse};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the counters of divided tiles.
const COUNTERS: usize = MOST_DIVIDED * size_of::<u32>();

/// The memory of a device that all its matrices share. Launches run one after another, so one is
/// enough. It is freed with the last matrix that has divided products.
#[derive(Default)]
pub(super) struct Scratch(Mutex<Option<Buffer>>);

impl Scratch {
    fn held(&self) -> MutexGuard<'_, Option<Buffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for partial sums of `bytes` bytes.
    pub(super) fn reserve(&self, device: &Device, bytes: usize) -> Result<()> {
        let (mut held, bytes) = (self.held(), bytes.saturating_add(COUNTERS));
        if held.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
            *held = None;
            *held = Some(Buffer::new(device, bytes)?);
        }
        Ok(())
    }

    /// The addresses of partial sums of `bytes` bytes and of the counters, which are zeros between
    /// launches.
    pub(super) fn at(&self, bytes: usize) -> Result<[u64; 2]> {
        match &*self.held() {
            Some(buffer) => Ok([buffer.range(COUNTERS, bytes)?, buffer.range(0, COUNTERS)?]),
            None => refuse("no memory was reserved for partial sums"),
        }
    }
}
