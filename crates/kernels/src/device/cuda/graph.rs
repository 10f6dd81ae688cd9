//! Captured launches.

use super::super::{Captured, Result};
use super::errors::failed;
use cudarc::driver::{result, sys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An instantiated graph. Its owner also holds the device and drops it later.
pub(super) struct CudaGraph {
    pub(super) launches: sys::CUgraphExec,
    pub(super) context: sys::CUcontext,
    pub(super) stream: sys::CUstream,
    /// As the device's.
    pub(super) launched: Arc<AtomicBool>,
}

// SAFETY: as the device: every call makes the context current.
unsafe impl Send for CudaGraph {}

impl Captured for CudaGraph {
    unsafe fn launch(&self) -> Result<()> {
        self.launched.store(false, Ordering::Relaxed);
        // SAFETY: context and stream live as long as the device, which the owner holds.
        unsafe {
            result::ctx::set_current(self.context).map_err(failed("context"))?;
            result::graph::launch(self.launches, self.stream).map_err(failed("graph"))
        }
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: as above; the graph may still run, so wait first. A failure here cannot be handled.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            let _ = result::graph::exec_destroy(self.launches);
        }
    }
}
