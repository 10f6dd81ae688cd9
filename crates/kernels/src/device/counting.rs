//! A driver that allocates nothing and counts bytes.

use super::tensor_map::{MapRows, TensorMap, host_map};
use super::{Captured, Driver, Kernel, Result, refuse};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Bytes of a device that no estimate exhausts.
const TOTAL: u64 = 1 << 62;

/// The allocations of an estimate.
#[derive(Default)]
pub(super) struct Count(Mutex<Allocations>);

#[derive(Default)]
struct Allocations {
    /// Bytes by address.
    bytes: BTreeMap<u64, u64>,
    used: u64,
    next: u64,
}

/// Captured launches of a driver that launches nothing.
struct Nothing;

impl Captured for Nothing {
    unsafe fn launch(&self) -> Result<()> {
        Ok(())
    }
}

impl Count {
    fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

impl Driver for Count {
    fn name(&self) -> &str {
        "estimate"
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((TOTAL - self.allocations().used, TOTAL))
    }

    fn is_counting(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut all = self.allocations();
        let bytes = bytes as u64;
        let used = all.used.checked_add(bytes).filter(|used| *used <= TOTAL);
        let Some(used) = used else {
            return refuse(format!("{bytes} bytes are more than any device has"));
        };
        // Every allocation has another address; none is ever read.
        all.next += 1;
        let address = all.next;
        all.bytes.insert(address, bytes);
        all.used = used;
        Ok(address)
    }

    fn free(&self, address: u64) {
        let mut all = self.allocations();
        all.used -= all.bytes.remove(&address).unwrap_or(0);
    }

    fn fill(&self, _: u64, _: u8, _: usize) -> Result<()> {
        Ok(())
    }

    fn upload(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn download(&self, bytes: &mut [u8], _: u64) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    unsafe fn launch(&self, _: Kernel, _: [u32; 3], _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn tensor_map(&self, rows: MapRows) -> Result<TensorMap> {
        Ok(host_map(rows))
    }

    fn begin_capture(&self) -> Result<()> {
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        Ok(Box::new(Nothing))
    }
}

#[cfg(test)]
mod tests {
    use crate::device::{Array, Buffer, Device, Precision};

    #[test]
    fn bytes_are_counted_until_they_are_freed() {
        let device = Device::counting();
        let used = || device.memory().map(|(free, total)| total - free);
        let buffer = Buffer::new(&device, 1 << 50).unwrap();
        let array = Array::padded(&device, Precision::Bf16, 3, 65).unwrap();
        assert_eq!(used(), Ok((1 << 50) + 3 * 128 * 2));
        drop(buffer);
        assert_eq!(used(), Ok(3 * 128 * 2));
        drop(array);
        assert_eq!(used(), Ok(0));
        assert!(Buffer::new(&device, usize::MAX).is_err());
        assert_eq!(used(), Ok(0));
    }

    #[test]
    fn nothing_is_stored() {
        let device = Device::counting();
        let buffer = Buffer::floats(&device, &[1.0, 2.0]).unwrap();
        let mut bytes = [1; 8];
        buffer.download(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8]);
        assert!(device.is_counting());
    }
}
