//! The kernels compiled for the host, run on the calling thread.

use crate::cost::{self, LaunchCost};
use crate::observe::{Observation, Observations, Report};
use crate::{Result, refuse};
use kernels::device::{
    Captured, Device, DeviceLimits, Driver, Kernel, MapRows, Marks, TensorMap, host_map,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes before an allocation; they hold its length.
const HEADER: usize = 256;

unsafe extern "C" {
    fn asynclane_begin(
        name: *const c_char,
        grid: *const u32,
        threads: u32,
        shared: u32,
        args: *const u8,
        options: *const Options,
        early: bool,
    ) -> *mut c_void;
    fn asynclane_finish(launch: *mut c_void);
}

/// The order and precision in which the emulation sums the products of a tensor core; `Sums` of `sums.h`.
/// The models are those of MMA-Sim (PyPI's `mmasim`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorSums {
    /// Compute capability 8.x: fused sums of eight products, 24 fraction bits, truncated.
    Ampere = 0,
    /// Compute capability 9.0: fused sums of sixteen products, 25 fraction bits, truncated.
    #[default]
    Hopper = 1,
    /// Exact sums, rounded once.
    Exact = 2,
}

/// A device that runs every kernel on the calling thread.
#[must_use]
pub fn emulated() -> Device {
    emulated_with(TOTAL)
}

/// As [`emulated`], with `bytes` bytes of memory.
#[must_use]
pub fn emulated_with(bytes: u64) -> Device {
    Device::new(Emulation::new(bytes, DeviceLimits::default(), TensorSums::default()))
}

/// As [`emulated`], with [`SMALL`] limits.
#[must_use]
pub fn emulated_small() -> Device {
    emulated_as(TensorSums::default())
}

/// As [`emulated_small`], without warpgroups.
#[cfg(test)]
pub(crate) fn emulated_warps() -> Device {
    let limits = DeviceLimits { warpgroups: false, ..SMALL };
    Device::new(Emulation::new(TOTAL, limits, TensorSums::default()))
}

/// As [`emulated_small`], with the sums of these tensor cores.
#[must_use]
pub fn emulated_as(sums: TensorSums) -> Device {
    Device::new(Emulation::new(TOTAL, SMALL, sums))
}

/// Bytes of a device's memory.
pub(crate) const TOTAL: u64 = 1 << 40;
/// Limits of a device on which small batches take several runs and have blocks of both kinds.
pub(crate) const SMALL: DeviceLimits = DeviceLimits {
    attention_bytes: 16 << 10,
    logit_bytes: 32 << 10,
    expert_bytes: 64 << 10,
    ..DeviceLimits::unmeasured(4)
};

/// The options of a run; `Options` of `emulate.cpp`.
#[repr(C)]
struct Options {
    sums: u32,
    /// Start and bytes of the allocations, in ascending order.
    ranges: *const [u64; 2],
    count: u64,
    report: *mut Report,
    /// The uses of the device's memory by observed launches before.
    step: *mut c_void,
}

/// The state of a device that its launches use.
#[derive(Default)]
struct Shared {
    sums: TensorSums,
    /// Bytes by address.
    allocations: Mutex<BTreeMap<u64, u64>>,
    observations: Option<Observations>,
    /// Microseconds: one for a block, one for a copied KiB.
    clock: AtomicU64,
    /// Some launches overlap: each ends when the next has begun, or when other work needs it.
    overlaps: AtomicBool,
    running: Mutex<Option<Running>>,
}

impl Shared {
    /// Ends the launch that runs.
    fn finish(&self) {
        drop(held(&self.running).take());
    }
}

/// A launch that has begun, and ends when this is dropped.
struct Running {
    begun: *mut c_void,
    /// Its arguments.
    _args: Vec<u64>,
}

// SAFETY: one thread at a time uses it.
unsafe impl Send for Running {}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: it was begun, and ends once; its arguments live.
        unsafe { asynclane_finish(self.begun) };
    }
}

/// An emulated device; device addresses are host addresses.
pub struct Emulation {
    shared: Arc<Shared>,
    captured: Mutex<Option<Vec<Launch>>>,
    total: u64,
    limits: DeviceLimits,
    /// Bytes of all allocations, without their headers.
    used: AtomicU64,
}

/// A launch with a copy of its argument.
struct Launch {
    shared: Arc<Shared>,
    kernel: Kernel,
    grid: [u32; 3],
    // Words of eight bytes, the alignment of arguments.
    args: Vec<u64>,
    /// It may begin while the launch before runs.
    over: bool,
}

impl Launch {
    /// # Safety
    /// As [`Driver::launch`].
    unsafe fn run(&self) -> Result<()> {
        let name = CString::new(self.kernel.name).expect("kernel names contain no zero byte");
        let Kernel { threads, shared, .. } = self.kernel;
        let blocks = self.grid.iter().map(|n| u64::from(*n)).product();
        self.shared.clock.fetch_add(blocks, Ordering::Relaxed);
        let mut report = None;
        let (mut ranges, mut step) = (Vec::new(), std::ptr::null_mut());
        if let Some(observations) = &self.shared.observations {
            let allocations = held(&self.shared.allocations);
            ranges.extend(allocations.iter().map(|(address, bytes)| [*address, *bytes]));
            report = Some(Box::<Report>::default());
            step = observations.step();
        }
        let options = Options {
            sums: self.shared.sums as u32,
            ranges: ranges.as_ptr(),
            count: ranges.len() as u64,
            report: report.as_mut().map_or(std::ptr::null_mut(), |report| &raw mut **report),
            step,
        };
        let (args, grid) = (self.args.clone(), self.grid.as_ptr());
        if !self.over {
            self.shared.finish();
        }
        // SAFETY: by the caller's promise; arguments and options live until the launch has ended.
        let begun = unsafe {
            let args = args.as_ptr().cast();
            asynclane_begin(
                name.as_ptr(),
                grid,
                threads,
                shared,
                args,
                &raw const options,
                self.over,
            )
        };
        if begun.is_null() {
            return refuse(format!("no kernel {}", self.kernel.name));
        }
        self.shared.finish();
        *held(&self.shared.running) = Some(Running { begun, _args: args });
        if !self.shared.overlaps.load(Ordering::Relaxed) {
            self.shared.finish();
        }
        if let (Some(observations), Some(report)) = (&self.shared.observations, report) {
            observations.add(Observation {
                kernel: self.kernel.name,
                cost: self.cost(),
                report: *report,
            });
        }
        Ok(())
    }
}

impl Launch {
    /// The work of the launch, from its arguments and the batch in the device's memory.
    fn cost(&self) -> Option<LaunchCost> {
        let bytes: Vec<u8> = self.args.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let allocations = held(&self.shared.allocations);
        let words = |address: u64, count: usize| {
            let (start, length) = allocations.range(..=address).next_back()?;
            if address + 4 * count as u64 > start + length {
                return None;
            }
            let read = |i| {
                // SAFETY: it is within an allocation.
                unsafe { (address as *const u32).add(i).read_unaligned() }
            };
            Some((0..count).map(read).collect())
        };
        cost::cost(self.kernel, self.grid, &bytes, &words)
    }
}

/// Launches that were not run.
struct Recording(Vec<Launch>);

impl Captured for Recording {
    unsafe fn launch(&self) -> Result<()> {
        if let Some(first) = self.0.first() {
            first.shared.finish();
        }
        // SAFETY: by the caller's promise.
        self.0.iter().try_for_each(|launch| unsafe { launch.run() })
    }
}

impl Emulation {
    /// A device with `total` bytes of memory, whose tensor cores sum like `sums`.
    #[must_use]
    pub fn new(total: u64, limits: DeviceLimits, sums: TensorSums) -> Self {
        Self {
            shared: Arc::new(Shared { sums, ..Shared::default() }),
            captured: Mutex::default(),
            total,
            limits,
            used: AtomicU64::new(0),
        }
    }

    /// The same device; its launches are added to `observations`.
    pub(crate) fn observed(self, observations: Observations) -> Self {
        let shared = Shared {
            sums: self.shared.sums,
            observations: Some(observations),
            ..Shared::default()
        };
        Self { shared: Arc::new(shared), ..self }
    }

    fn left(&self) -> u64 {
        self.total - self.used.load(Ordering::Relaxed)
    }

    fn captured(&self) -> MutexGuard<'_, Option<Vec<Launch>>> {
        held(&self.captured)
    }

    /// Ends the launch that may overlap the next one.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// Refuses operations that a GPU's driver refuses during a capture, and ends the launches before them.
    fn check_not_capturing(&self) -> Result<()> {
        if self.captured().is_some() {
            return refuse("a capture is in progress");
        }
        self.finish();
        Ok(())
    }

    /// Runs or captures a launch. `over`: it may begin while the launch before runs.
    ///
    /// # Safety
    /// As [`Driver::launch`] and [`Driver::launch_over`].
    unsafe fn launch_as(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        args: &[u8],
        over: bool,
    ) -> Result<()> {
        let mut words = vec![0; args.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(args.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(all);
        }
        // An observed launch runs alone.
        let over = over && self.shared.observations.is_none();
        let launch = Launch { shared: self.shared.clone(), kernel, grid, args: words, over };
        if let Some(captured) = &mut *self.captured() {
            captured.push(launch);
            return Ok(());
        }
        // SAFETY: by the caller's promise.
        unsafe { launch.run() }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
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

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.check_not_capturing()?;
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
            let start = layout(bytes).map_or(std::ptr::null_mut(), |layout| alloc_zeroed(layout));
            if start.is_null() {
                self.used.fetch_sub(bytes as u64, order);
                return refuse(format!("no memory for {bytes} bytes"));
            }
            start.cast::<usize>().write(bytes);
            let address = start.add(HEADER) as u64;
            held(&self.shared.allocations).insert(address, bytes as u64);
            Ok(address)
        }
    }

    fn free(&self, address: u64) {
        self.finish();
        let bytes = held(&self.shared.allocations).remove(&address);
        if let (Some(observations), Some(bytes)) = (&self.shared.observations, bytes) {
            observations.forget(address, bytes);
        }
        // SAFETY: `allocate` returned it and wrote the length before it.
        unsafe {
            let start = (address as *mut u8).sub(HEADER);
            let bytes = start.cast::<usize>().read();
            self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
            if let Ok(layout) = layout(bytes) {
                dealloc(start, layout);
            }
        }
    }

    fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.check_not_capturing()?;
        // SAFETY: callers name a range of an allocation.
        unsafe { (address as *mut u8).write_bytes(byte, bytes) };
        Ok(())
    }

    fn upload(&self, destination: u64, bytes: &[u8]) -> Result<()> {
        self.check_not_capturing()?;
        // SAFETY: as above; host slices do not overlap device memory.
        unsafe { (destination as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn download(&self, bytes: &mut [u8], source: u64) -> Result<()> {
        self.check_not_capturing()?;
        // SAFETY: as above.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(source as *const u8, bytes.len()) };
        Ok(())
    }

    fn tensor_map(&self, rows: MapRows) -> Result<TensorMap> {
        match rows.address.is_multiple_of(16) {
            true => Ok(host_map(rows)),
            false => refuse("rows that are not aligned have no tensor map"),
        }
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.launch_as(kernel, grid, args, false) }
    }

    fn try_overlap(&self) -> Result<()> {
        self.shared.overlaps.store(self.shared.observations.is_none(), Ordering::Relaxed);
        Ok(())
    }

    unsafe fn launch_over(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.launch_as(kernel, grid, args, true) }
    }

    fn begin_capture(&self) -> Result<()> {
        *self.captured() = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        match self.captured().take() {
            Some(launches) => Ok(Box::new(Recording(launches))),
            None => refuse("nothing was captured"),
        }
    }

    fn copy(&self, destination: u64, source: u64, bytes: usize) -> Result<()> {
        self.check_not_capturing()?;
        let time = bytes.div_ceil(1 << 10) as u64;
        self.shared.clock.fetch_add(time, Ordering::Relaxed);
        // SAFETY: callers name ranges of allocations.
        unsafe { (destination as *mut u8).copy_from(source as *const u8, bytes) };
        Ok(())
    }

    fn marks(&self) -> Result<Box<dyn Marks>> {
        Ok(Box::new(Points { shared: self.shared.clone(), times: Vec::new() }))
    }
}

/// Points of the emulated clock.
struct Points {
    shared: Arc<Shared>,
    times: Vec<u64>,
}

impl Marks for Points {
    fn mark(&mut self) -> Result<()> {
        self.times.push(self.shared.clock.load(Ordering::Relaxed));
        Ok(())
    }

    fn seconds(&mut self) -> Result<Vec<f64>> {
        let pairs = self.times.windows(2);
        Ok(pairs.map(|pair| (pair[1] - pair[0]) as f64 * 1e-6).collect())
    }
}
