//! The same operations on a CUDA device.
//!
//! The kernels are CUDA C++ (`cuda/` in this crate), compiled with the feature `cuda`. The driver's
//! library is opened at run time, so that the same binary starts on a machine without a driver. The
//! kernels ran on an H200.
//!
//! As in the whole crate, a row's result never depends on the other rows of the batch. Matrix
//! products sum over the inner dimension in the same order for every tile and number of blocks, and
//! attention uses segments and partitions of fixed lengths. cuBLAS is not used because it chooses its
//! algorithm by the number of rows.
//!
//! An operation fails if an array has another shape than documented, a range or an index is out of bounds,
//! or the device fails; an allocation also if the device is out of memory. Other errors are documented
//! where they occur.
//!
//! A step is one upload (the batch's arrays in one buffer) and one download (its records, and the most
//! probable tokens of rows that want them).
//! The launches of a step depend only on the batch's shape; they can be captured once and launched as
//! one graph ([`Graph`]).

#[expect(missing_docs, reason = "fields are those of the structures in `cuda/`")]
pub mod args;
mod array;
mod attention;
mod batch;
mod canvas;
mod counting;
#[cfg(feature = "cuda")]
mod cuda;
mod experts;
mod filters;
mod heads;
mod launch;
mod matrix;
mod packed;
mod residual;
mod rows;
mod score;
mod scratch;
mod selftest;
mod tensor_map;
mod timing;

pub use array::{Array, Buffer, Precision};
pub use attention::{AttentionScratch, AttentionSizes, DevicePool, PoolLayer, PoolSizes};
pub use batch::{
    BatchArrays, BatchLimits, BatchShape, BatchSizes, CanvasRows, DeviceBatch, ScoredRows,
};
pub use canvas::*;
pub use experts::{DeviceExperts, ExpertScratch, ExpertSizes};
pub use heads::{DeviceRope, HeadRows, HeadTransform, project, split};
pub use launch::{
    AttentionWork, DeviceLimits, Division, HeadColumns, MatrixFormat, Pipeline, ProductLaunch,
    ProductSizes, ProductTile, Roofline, TileNames, row_instructions, segment,
};
pub use matrix::{DeviceMatrix, MatrixSizes, Store};
pub use residual::{NormedSum, add_normed};
pub use rows::*;
pub use score::{DeviceScores, ScoringHead};
pub use selftest::{Check, HeadCase, NormCase, RingCase, selftest};
pub use tensor_map::{BOX_ROWS, MapRows, TensorMap, host_map};
pub use timing::{LaunchTime, Marks};

use scratch::Scratch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tensor_map::Refusal;

/// The error of a device operation, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

type Result<T> = std::result::Result<T, DeviceError>;

/// An error with this text.
fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(DeviceError(what.into()))
}

/// A kernel with its threads and bytes of dynamic shared memory per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The name in the module.
    pub name: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// True if warpgroups multiply, which devices of compute capability 9.0 can.
    pub warpgroups: bool,
    /// True if bulk copies load its operands, and its blocks may run in clusters.
    pub bulk: bool,
}

impl Kernel {
    /// True if a device has what the kernel needs.
    pub fn runs_on(&self, limits: DeviceLimits) -> bool {
        let bulk = !self.bulk || limits.bulk;
        self.shared as usize <= limits.shared && (!self.warpgroups || limits.warpgroups) && bulk
    }
}

impl Kernel {
    /// The byte of shared memory from which on factors of rows are, at its end.
    fn factors(&self) -> Option<usize> {
        (self.shared as usize).checked_sub(launch::FACTORS)
    }
}

/// A kernel without products of warpgroups.
const fn kernel(name: &'static str, threads: u32, shared: u32) -> Kernel {
    Kernel { name, threads, shared, warpgroups: false, bulk: false }
}

/// Every kernel.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let all = [
        array::KERNELS,
        canvas::KERNELS,
        experts::KERNELS,
        filters::KERNELS,
        heads::KERNELS,
        rows::KERNELS,
        score::KERNELS,
    ];
    let all = all.into_iter().flatten().copied();
    all.chain(attention::kernels()).chain(launch::kernels())
}

/// Runs kernels and allocates memory: a GPU's driver, or one that emulates, observes or only counts.
/// Work runs in the order of the calls. Addresses are what [`Self::allocate`] returned, or lie within
/// such an allocation.
pub trait Driver: Send + Sync {
    /// The device's name.
    fn name(&self) -> &str;
    /// Free and total bytes.
    fn memory(&self) -> Result<(u64, u64)>;
    /// The device's resources for launches.
    fn limits(&self) -> DeviceLimits {
        DeviceLimits::default()
    }
    /// True if it stores no numbers: it counts allocations, or lists launches.
    fn is_counting(&self) -> bool {
        false
    }
    /// The error after which nothing works on it any more in this process, if there was one.
    fn lost(&self) -> Option<&str> {
        None
    }
    /// Allocates zeroed memory, aligned for every kernel.
    fn allocate(&self, bytes: usize) -> Result<u64>;
    /// Frees an allocation after all earlier work.
    fn free(&self, address: u64);
    /// Sets `bytes` bytes from `address` on to `byte`.
    fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()>;
    /// Copies in stream order; `bytes` may be freed when it returns.
    fn upload(&self, address: u64, bytes: &[u8]) -> Result<()>;
    /// Waits for all earlier work, then copies.
    fn download(&self, bytes: &mut [u8], address: u64) -> Result<()>;
    /// Runs a kernel over `grid` blocks.
    ///
    /// # Errors
    /// If there is no such kernel, or the device fails.
    ///
    /// # Safety
    /// `args` is the kernel's argument, and what it points to is as large as the kernel assumes.
    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()>;
    /// Tries launches that begin while the one before runs, captured and not.
    ///
    /// # Errors
    /// If the device has none, or refuses them.
    fn try_overlap(&self) -> Result<()> {
        refuse("its launches run one after the other")
    }
    /// As [`Self::launch`], but if the call before was a launch too, the kernel may begin while that one runs.
    ///
    /// # Errors
    /// As [`Self::launch`].
    ///
    /// # Safety
    /// As [`Self::launch`]; and the kernel waits for the launches before where it must.
    unsafe fn launch_over(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.launch(kernel, grid, args) }
    }
    /// Starts to capture this thread's launches instead of running them.
    fn begin_capture(&self) -> Result<()>;
    /// Ends the capture and returns the captured launches.
    fn end_capture(&self) -> Result<Box<dyn Captured>>;
    /// A description of rows for bulk copies, valid as long as their memory.
    fn tensor_map(&self, _rows: MapRows) -> Result<TensorMap> {
        refuse("this device has no tensor maps")
    }
    /// Why kernels with bulk copies do not run, if the device should be able to run them.
    fn bulk_refusal(&self) -> Option<String> {
        None
    }
    /// Copies within the device's memory, in stream order.
    fn copy(&self, _to: u64, _from: u64, _bytes: usize) -> Result<()> {
        refuse("this device copies nothing")
    }
    /// A clock of this device's work.
    fn marks(&self) -> Result<Box<dyn Marks>> {
        refuse("this device has no clock")
    }
}

/// Captured launches.
pub trait Captured: Send {
    /// Runs the launches in order.
    ///
    /// # Safety
    /// The memory that their arguments point to is still allocated.
    unsafe fn launch(&self) -> Result<()>;
}

/// A device. Clones refer to the same device.
#[derive(Clone)]
pub struct Device {
    driver: Arc<dyn Driver>,
    limits: DeviceLimits,
    /// Number of allocations and frees until now.
    changes: Arc<AtomicU64>,
    scratch: Arc<Mutex<Weak<Scratch>>>,
    refusal: Arc<Refusal>,
    overlap_refusal: Option<Arc<str>>,
}

/// Captured launches that run as one, on the current contents of the memory they refer to.
pub struct Graph {
    captured: Box<dyn Captured>,
    device: Device,
    changes: u64,
}

impl Graph {
    /// Runs the launches. Returns false without running them if memory was allocated or freed since
    /// the capture, because the launches may refer to freed memory.
    pub fn launch(&self) -> Result<bool> {
        if self.device.changes() != self.changes {
            return Ok(false);
        }
        // SAFETY: no buffer came or went since the capture.
        unsafe { self.captured.launch() }.map(|()| true)
    }
}

impl Device {
    /// True if this build supports CUDA devices.
    pub const BUILT: bool = cfg!(feature = "cuda");

    /// Opens the CUDA device of this number, from 0, among those that the driver shows
    /// (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// If there is no driver or no such device, the device is too old, or fails.
    #[cfg(feature = "cuda")]
    pub fn open(ordinal: u32) -> Result<Self> {
        let mut device = Self::new(cuda::Cuda::open(ordinal)?);
        device.measure_memory()?;
        let overlap = device.limits.overlap;
        Ok(device.with_overlap(overlap))
    }

    /// Opens a CUDA device; not available in this build.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "cuda"))]
    pub fn open(_: u32) -> Result<Self> {
        refuse("this build has no CUDA support (feature `cuda`)")
    }

    /// A device that counts its allocations and computes nothing: numbers are not stored, and results
    /// are zero. For estimates of memory.
    pub fn counting() -> Self {
        Self::new(counting::Count::default())
    }

    /// True if it stores no numbers, as [`Self::counting`].
    pub fn is_counting(&self) -> bool {
        self.driver.is_counting()
    }

    /// A device with this driver.
    pub fn new(driver: impl Driver + 'static) -> Self {
        Self {
            limits: driver.limits(),
            driver: Arc::new(driver),
            changes: Arc::default(),
            scratch: Arc::default(),
            refusal: Arc::default(),
            overlap_refusal: None,
        }
    }

    /// The driver, for one that wraps it.
    pub fn driver(&self) -> Arc<dyn Driver> {
        self.driver.clone()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.driver.name()
    }

    /// Free and total bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.driver.memory()
    }

    /// The error after which nothing works on the device any more in this process, if there was one.
    pub fn lost(&self) -> Option<&str> {
        self.driver.lost()
    }

    /// The device's resources for launches.
    pub fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// The same device, on which bulk copies may or may not load the operands of products.
    #[must_use]
    pub fn with_ring(mut self, ring: bool) -> Self {
        self.limits.ring = ring && self.limits.bulk;
        self
    }

    /// The same device, whose launches may or may not overlap; they do not if the driver refuses that
    /// ([`Self::overlap_refusal`]).
    #[must_use]
    pub fn with_overlap(mut self, overlap: bool) -> Self {
        let refusal = overlap.then(|| self.driver.try_overlap().err()).flatten();
        self.limits.overlap = overlap && refusal.is_none();
        self.overlap_refusal = refusal.map(|DeviceError(reason)| reason.into());
        self
    }

    /// Why launches do not overlap, if they were to.
    pub fn overlap_refusal(&self) -> Option<&str> {
        self.overlap_refusal.as_deref()
    }

    /// The same device, on which a kernel may or may not do the work of several.
    #[must_use]
    pub fn with_fused(mut self, fused: bool) -> Self {
        self.limits.fused = fused;
        self
    }

    /// The same device, with all kernels that it can run: also fused ones, bulk copies and overlapping launches,
    /// which no card has run.
    #[must_use]
    pub fn with_untested(self) -> Self {
        self.with_fused(true).with_ring(true).with_overlap(true)
    }

    /// The memory that divided products share.
    fn scratch(&self) -> Arc<Scratch> {
        let mut held = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        held.upgrade().unwrap_or_else(|| {
            let scratch = Arc::default();
            *held = Arc::downgrade(&scratch);
            scratch
        })
    }

    /// Captures the launches of `f` instead of running them. `f` must not allocate or free memory,
    /// nor wait for the device.
    ///
    /// # Errors
    /// If `f` or the device fails, or memory was allocated or freed during the capture.
    pub fn capture(&self, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let changes = self.changes();
        self.driver.begin_capture()?;
        let done = f();
        // Always end the capture, or the device would also capture later launches.
        let captured = self.driver.end_capture();
        done?;
        let captured = captured?;
        if self.changes() != changes {
            return refuse("memory was allocated or freed during a capture");
        }
        Ok(Graph { captured, device: self.clone(), changes })
    }

    /// Number of allocations and frees until now.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Launches a kernel unless the grid is empty.
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
            match self.limits.overlap {
                true => self.driver.launch_over(kernel, grid, bytes),
                false => self.driver.launch(kernel, grid, bytes),
            }
        }
    }
}
