//! What emulated launches do with memory: bytes, races, bank conflicts.

use std::sync::{Arc, Mutex};

/// Bytes of one direction in global memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Distinct bytes of every block, summed over the blocks: the traffic of the L2 cache, if a block
    /// asks for a byte once.
    pub by_blocks: u64,
    /// Distinct bytes of all blocks: the least traffic of DRAM.
    pub distinct: u64,
    /// Sectors of 32 bytes in the accesses of warps.
    pub sectors: u64,
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

/// `Report` of `cuda/observe.h`.
#[repr(C)]
pub(super) struct Report {
    read: Traffic,
    written: Traffic,
    passes: Accesses,
    conflicts: Accesses,
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
            failures: 0,
            text: [0; TEXT],
        }
    }
}

/// One launch.
pub struct Observation {
    pub(super) kernel: &'static str,
    pub(super) grid: [u32; 3],
    /// The kernel's argument, in words of eight bytes.
    pub(super) args: Vec<u64>,
    pub(super) report: Report,
}

impl Observation {
    /// The kernel's name.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.kernel
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

    /// Races and accesses out of bounds: their number, and a line for each of the first.
    #[must_use]
    pub fn failures(&self) -> (u64, String) {
        let text = self.report.text.split(|byte| *byte == 0).next();
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        (self.report.failures, text.into_owned())
    }
}

/// The launches of a device in their order.
#[derive(Clone, Default)]
pub struct Observations(Arc<Mutex<Vec<Observation>>>);

impl Observations {
    pub(super) fn add(&self, one: Observation) {
        self.0
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .push(one);
    }

    /// Takes the launches so far.
    #[must_use]
    pub fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(|broken| broken.into_inner()))
    }
}
