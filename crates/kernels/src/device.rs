//! The same operations on a CUDA device.
//!
//! Kernels are CUDA C++ (`cuda/` in this crate), compiled under the feature `cuda` and opened at run
//! time through the driver's library, so that the same binary starts on a machine that has none.
//! They were compiled, and their arithmetic is tested on a CPU (feature `emulation`: the same
//! sources by the host's compiler); they were never run on a GPU.
//!
//! The rule of this crate holds for them too: a row's result never depends on the other rows of
//! the batch. Matrix products walk the inner dimension in one order whatever the tile, attention
//! folds parts of a fixed length. This is why products are kernels of this crate: cuBLAS picks its
//! algorithm by the number of rows and cannot be told not to.
//!
//! A step is one upload (the batch's arrays in one buffer) and one download (its records); rows that
//! draw through a filter or want their most probable tokens bring their logits to the host besides.
//! The launches between them depend on the batch's shape alone and can be captured once and launched
//! as one ([`Graph`]).

mod args;
mod array;
mod attention;
mod batch;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "emulation")]
mod emulation;
mod matrix;
mod rows;
mod score;
mod selftest;

pub use array::{Array, Buffer, Precision};
pub use attention::{AttentionScratch, AttentionSizes, DevicePool, PoolSizes};
pub use batch::{BatchArrays, BatchLimits, BatchShape, DeviceBatch};
pub use matrix::DeviceMatrix;
pub use rows::{Heads, Places, copy_pages, embed, norm, split};
pub use score::DeviceScores;
pub use selftest::{Check, selftest};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a device cannot be used, or what it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

type Result<T> = std::result::Result<T, DeviceError>;

/// A failure with this text.
fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(DeviceError(what.into()))
}

/// A kernel and the dynamic shared memory of its blocks.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(feature = "cuda", feature = "emulation")),
    expect(dead_code, reason = "drivers read it")
)]
struct Kernel {
    name: &'static str,
    threads: u32,
    shared: u32,
}

/// What runs kernels and owns memory: a GPU's driver, or the emulation.
trait Driver: Send + Sync {
    fn name(&self) -> &str;
    /// Bytes free and in all.
    fn memory(&self) -> Result<(u64, u64)>;
    /// Memory of zeros, aligned for every kernel.
    fn allocate(&self, bytes: usize) -> Result<u64>;
    fn free(&self, at: u64);
    fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()>;
    /// Copies in the order of launches; `from` may go as soon as it returns.
    fn upload(&self, to: u64, from: &[u8]) -> Result<()>;
    /// Waits for everything before it.
    fn download(&self, to: &mut [u8], from: u64) -> Result<()>;
    /// Runs a kernel over `grid` blocks.
    ///
    /// # Safety
    /// `args` is the kernel's argument, and what it points to is as large as the kernel assumes.
    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()>;
    /// From here on this thread's launches are kept instead of run.
    fn begin_capture(&self) -> Result<()>;
    /// What was kept, or why it could not be.
    fn end_capture(&self) -> Result<Box<dyn Captured>>;
}

/// Launches that a driver kept.
trait Captured: Send {
    /// Runs them in their order.
    ///
    /// # Safety
    /// What their arguments point to is still there.
    unsafe fn launch(&self) -> Result<()>;
}

/// A device. Clones are the same one.
#[derive(Clone)]
pub struct Device {
    driver: Arc<dyn Driver>,
    /// How often memory was taken or given back.
    changes: Arc<AtomicU64>,
}

/// Launches that were captured and run as one, over what their arguments point to at the time.
pub struct Graph {
    captured: Box<dyn Captured>,
    device: Device,
    changes: u64,
}

impl Graph {
    /// Runs the launches, or tells that it cannot because memory was taken or given back since
    /// they were captured, so that they may point to what is gone.
    ///
    /// # Errors
    /// If the device fails.
    pub fn launch(&self) -> Result<bool> {
        if self.device.changes() != self.changes {
            return Ok(false);
        }
        // SAFETY: no buffer came or went since the capture.
        unsafe { self.captured.launch() }.map(|()| true)
    }
}

impl Device {
    /// Whether this build can open one.
    pub const BUILT: bool = cfg!(feature = "cuda");

    /// The first CUDA device.
    ///
    /// # Errors
    /// Why there is none: a build without the feature, no driver, no device, one that is too old.
    #[cfg(feature = "cuda")]
    pub fn open() -> Result<Self> {
        Ok(Self::new(cuda::Cuda::open()?))
    }

    /// No device: this build has none.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "cuda"))]
    pub fn open() -> Result<Self> {
        refuse("this build has no CUDA (feature `cuda`)")
    }

    /// Runs every kernel on the calling thread: right for tests, and for nothing else.
    #[cfg(feature = "emulation")]
    #[must_use]
    pub fn emulated() -> Self {
        Self::emulated_with(1 << 40)
    }

    /// As [`Self::emulated`], with so many bytes of memory: what goes beyond them is refused.
    #[cfg(feature = "emulation")]
    #[must_use]
    pub fn emulated_with(bytes: u64) -> Self {
        Self::new(emulation::Emulation::new(bytes))
    }

    #[cfg(any(feature = "cuda", feature = "emulation"))]
    fn new(driver: impl Driver + 'static) -> Self {
        Self {
            driver: Arc::new(driver),
            changes: Arc::default(),
        }
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.driver.name()
    }

    /// Bytes free now and in all.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.driver.memory()
    }

    /// Keeps the launches of `f` instead of running them. `f` must neither take nor give back
    /// memory, nor wait for the device.
    ///
    /// # Errors
    /// What `f` returns, what the device says, or if memory was taken or given back.
    pub fn capture(&self, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let changes = self.changes();
        self.driver.begin_capture()?;
        let done = f();
        // Always, or the device would keep what comes next.
        let captured = self.driver.end_capture();
        done?;
        let captured = captured?;
        if self.changes() != changes {
            return refuse("memory was taken or given back during a capture");
        }
        Ok(Graph {
            captured,
            device: self.clone(),
            changes,
        })
    }

    /// How often memory was taken or given back so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a kernel unless the grid is empty.
    ///
    /// # Safety
    /// `args` is the structure that the kernel takes, and what it points to is as large as the
    /// kernel assumes.
    unsafe fn launch<A>(&self, kernel: Kernel, grid: [u32; 3], args: &A) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: arguments are plain numbers, read as bytes as long as they live; the rest is the
        // caller's promise.
        unsafe {
            let bytes = std::slice::from_raw_parts(std::ptr::from_ref(args).cast(), size_of::<A>());
            self.driver.launch(kernel, grid, bytes)
        }
    }
}
