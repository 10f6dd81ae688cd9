//! Observations of emulated launches: bytes, races, bank conflicts.

use crate::cost::LaunchCost;
use crate::emulation::{Emulation, SMALL, TOTAL, TensorSums};
use kernels::device::{Device, DeviceLimits};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Sectors of 32 bytes, the unit of the caches, of one direction in global memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Distinct sectors of every block, summed over the blocks: the traffic of the L2 cache, if a
    /// block asks for a sector once.
    pub by_blocks: u64,
    /// Distinct sectors of all blocks: the least traffic of DRAM.
    pub distinct: u64,
    /// Sectors of every access of a warp.
    pub by_warps: u64,
}

/// One number for each kind of access to shared memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Loads and stores.
    pub plain: u64,
    /// Asynchronous copies.
    pub copies: u64,
    /// Loads of matrices.
    pub matrices: u64,
}

const TEXT: usize = 2048;

/// `Report` of `observe.h`.
#[repr(C)]
pub(crate) struct Report {
    read: Traffic,
    written: Traffic,
    passes: Accesses,
    conflicts: Accesses,
    early: u64,
    failures: u64,
    text: [u8; TEXT],
}

impl Default for Report {
    fn default() -> Self {
        Self {
            read: Traffic::default(),
            written: Traffic::default(),
            passes: Accesses::default(),
            conflicts: Accesses::default(),
            early: 0,
            failures: 0,
            text: [0; TEXT],
        }
    }
}

/// One launch.
pub struct Observation {
    pub(crate) kernel: &'static str,
    pub(crate) cost: Option<LaunchCost>,
    pub(crate) report: Report,
}

impl Observation {
    /// The kernel's name.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// The work of the launch by its arguments; `None` if the words that it depends on are not in the
    /// device's memory.
    #[must_use]
    pub fn cost(&self) -> Option<&LaunchCost> {
        self.cost.as_ref()
    }

    /// Bytes read from global memory.
    #[must_use]
    pub fn read(&self) -> Traffic {
        self.report.read
    }

    /// Bytes written to global memory.
    #[must_use]
    pub fn written(&self) -> Traffic {
        self.report.written
    }

    /// Passes through shared memory without bank conflicts.
    #[must_use]
    pub fn passes(&self) -> Accesses {
        self.report.passes
    }

    /// Additional passes, because several words of an access are in one bank.
    #[must_use]
    pub fn conflicts(&self) -> Accesses {
        self.report.conflicts
    }

    /// Sectors that the kernel read before its wait for the launches before, for the first time.
    #[must_use]
    pub fn early(&self) -> u64 {
        self.report.early
    }

    /// Races, accesses out of bounds or before a wait for other launches: their number, and a line for each of the
    /// first.
    #[must_use]
    pub fn failures(&self) -> (u64, String) {
        let text = self.report.text.split(|byte| *byte == 0).next();
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        (self.report.failures, text.into_owned())
    }
}

unsafe extern "C" {
    fn asynclane_step() -> *mut c_void;
    fn asynclane_end_step(step: *mut c_void);
    fn asynclane_forget(step: *mut c_void, start: u64, bytes: u64);
}

/// The uses of a device's memory by its launches.
struct Step(*mut c_void);

// SAFETY: launches of a device are observed one after the other.
unsafe impl Send for Step {}
// SAFETY: as above.
unsafe impl Sync for Step {}

impl Default for Step {
    fn default() -> Self {
        // SAFETY: it has no condition.
        Self(unsafe { asynclane_step() })
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // SAFETY: it was made once.
        unsafe { asynclane_end_step(self.0) };
    }
}

/// The launches of a device in their order.
#[derive(Clone, Default)]
pub struct Observations(Arc<Mutex<Vec<Observation>>>, Arc<Step>);

impl Observations {
    pub(crate) fn add(&self, one: Observation) {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner()).push(one);
    }

    /// The uses by the launches before, for the observer of the next.
    pub(crate) fn step(&self) -> *mut c_void {
        self.1.0
    }

    /// Forgets what launches did with an allocation, which is freed.
    pub(crate) fn forget(&self, start: u64, bytes: u64) {
        // SAFETY: no launch runs.
        unsafe { asynclane_forget(self.1.0, start, bytes) };
    }

    /// Takes the launches since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(|broken| broken.into_inner()))
    }
}

/// As [`crate::emulated_small`]; what every launch does with memory is recorded.
#[must_use]
pub fn observed() -> (Device, Observations) {
    observed_on(SMALL)
}

/// The same of a device without warpgroups.
#[cfg(test)]
pub(crate) fn observed_warps() -> (Device, Observations) {
    observed_on(DeviceLimits { warpgroups: false, ..SMALL })
}

fn observed_on(limits: DeviceLimits) -> (Device, Observations) {
    let observations = Observations::default();
    let driver = Emulation::new(TOTAL, limits, TensorSums::default());
    (Device::new(driver.observed(observations.clone())), observations)
}
