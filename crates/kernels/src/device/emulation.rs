//! Kernels by the host's compiler, on the calling thread.

use super::{Driver, Kernel, Result, refuse};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

/// What lies in front of an allocation: its length.
const HEADER: usize = 256;

unsafe extern "C" {
    fn asynclane_emulate(
        name: *const c_char,
        grid: *const u32,
        threads: u32,
        shared: u32,
        args: *const u8,
    ) -> bool;
}

/// Addresses are the host's.
pub(super) struct Emulation {
    total: u64,
    /// Bytes of all allocations, without their headers.
    used: AtomicU64,
}

impl Emulation {
    /// With so many bytes.
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            used: AtomicU64::new(0),
        }
    }

    fn left(&self) -> u64 {
        self.total - self.used.load(Ordering::Relaxed)
    }
}

fn layout(bytes: usize) -> Result<Layout> {
    match Layout::from_size_align(bytes + HEADER, HEADER) {
        Ok(layout) => Ok(layout),
        Err(_) => refuse(format!("{bytes} bytes")),
    }
}

impl Driver for Emulation {
    fn name(&self) -> &str {
        "emulation"
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((self.left(), self.total))
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let more = |used: u64| {
            let used = used.checked_add(bytes as u64);
            used.filter(|used| *used <= self.total)
        };
        let order = Ordering::Relaxed;
        if self.used.fetch_update(order, order, more).is_err() {
            let left = self.left();
            return refuse(format!("{bytes} bytes of device memory, {left} free"));
        }
        // SAFETY: the layout has a size; the header has room for a length.
        unsafe {
            let at = layout(bytes).map_or(std::ptr::null_mut(), |layout| alloc_zeroed(layout));
            if at.is_null() {
                self.used.fetch_sub(bytes as u64, order);
                return refuse(format!("no memory for {bytes} bytes"));
            }
            at.cast::<usize>().write(bytes);
            Ok(at.add(HEADER) as u64)
        }
    }

    fn free(&self, at: u64) {
        // SAFETY: `allocate` returned it and wrote the length in front of it.
        unsafe {
            let start = (at as *mut u8).sub(HEADER);
            let bytes = start.cast::<usize>().read();
            self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
            if let Ok(layout) = layout(bytes) {
                dealloc(start, layout);
            }
        }
    }

    fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: callers name a range of an allocation.
        unsafe { (at as *mut u8).write_bytes(byte, bytes) };
        Ok(())
    }

    fn upload(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: as above; host slices are no device memory.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn download(&self, to: &mut [u8], from: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe {
            to.as_mut_ptr()
                .copy_from_nonoverlapping(from as *const u8, to.len())
        };
        Ok(())
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: *const u8) -> Result<()> {
        let name = CString::new(kernel.name).expect("names of kernels have no zero");
        let Kernel {
            threads, shared, ..
        } = kernel;
        // SAFETY: by the caller's promise.
        let known =
            unsafe { asynclane_emulate(name.as_ptr(), grid.as_ptr(), threads, shared, args) };
        match known {
            true => Ok(()),
            false => refuse(format!("no kernel {}", kernel.name)),
        }
    }
}
