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

pub use array::{Array, Buffer, Precision};
pub use attention::{AttentionScratch, AttentionSizes, DevicePool, PoolSizes};
pub use batch::{BatchArrays, BatchLimits, DeviceBatch};
pub use matrix::DeviceMatrix;
pub use rows::{Heads, Places, copy_pages, embed, norm, split};
pub use score::{DeviceScores, score_rows};

use std::sync::Arc;

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
    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: *const u8) -> Result<()>;
}

/// A device. Clones are the same one.
#[derive(Clone)]
pub struct Device(Arc<dyn Driver>);

impl Device {
    /// Whether this build can open one.
    pub const BUILT: bool = cfg!(feature = "cuda");

    /// The first CUDA device.
    ///
    /// # Errors
    /// Why there is none: a build without the feature, no driver, no device, one that is too old.
    #[cfg(feature = "cuda")]
    pub fn open() -> Result<Self> {
        Ok(Self(Arc::new(cuda::Cuda::open()?)))
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
        Self(Arc::new(emulation::Emulation::new(bytes)))
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Bytes free now and in all.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.0.memory()
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
        // SAFETY: by the caller's promise.
        unsafe { self.0.launch(kernel, grid, std::ptr::from_ref(args).cast()) }
    }
}
