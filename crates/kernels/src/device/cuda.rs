//! The CUDA driver, opened at run time.
//!
//! candle's feature `cuda` links libcuda, cuBLAS and other libraries, so that a binary built with it
//! does not start without them. This module uses cudarc directly, which opens the driver's library
//! at run time.

mod bulk;
mod errors;
mod graph;
mod image;
mod overlap;

use super::launch::{FUSED, OVERLAPS, RINGS};
use super::tensor_map::{MapRows, TensorMap};
use super::timing::Marks;
use super::{Captured, DeviceLimits, Driver, Kernel, Result, kernels, refuse};
use cudarc::driver::{result, sys};
use errors::failed;
use graph::CudaGraph;
use image::{Image, OLDEST, Release};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Dynamic shared memory that a kernel may use without setting an attribute.
const PLAIN_SHARED: u32 = 48 << 10;

/// A CUDA device.
pub(super) struct Cuda {
    name: String,
    limits: DeviceLimits,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    module: sys::CUmodule,
    functions: HashMap<&'static str, sys::CUfunction>,
    /// Why kernels with bulk copies do not run.
    refusal: Option<String>,
    pinned: Mutex<Pinned>,
    /// Memory to free after the capture in progress, if there is one.
    capture: Mutex<Option<Vec<u64>>>,
    /// True if the last call that gave the stream work was a launch.
    launched: Arc<AtomicBool>,
}

// SAFETY: a context may be used by every thread that makes it current, which every call does.
unsafe impl Send for Cuda {}
// SAFETY: as above; the pinned memory has a lock.
unsafe impl Sync for Cuda {}

/// Pinned host memory, which the device reads and writes directly.
struct Pinned {
    start: *mut u8,
    bytes: usize,
}

impl Cuda {
    pub(super) fn open(ordinal: u32) -> Result<Self> {
        // SAFETY: opens the library, or not.
        if !unsafe { sys::is_culib_present() } {
            return refuse("no NVIDIA driver (libcuda.so.1) was found");
        }
        result::init().map_err(failed("no device"))?;
        let number = number_of(ordinal)?;
        let device = result::device::get(number).map_err(failed("device"))?;
        let name = result::device::get_name(device).map_err(failed("device"))?;
        let attribute = |which| {
            // SAFETY: the device exists.
            unsafe { result::device::get_attribute(device, which) }.map_err(failed("device"))
        };
        use sys::CUdevice_attribute as Attribute;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let version = (major(device)?, minor);
        if version < OLDEST {
            let (major, minor) = version;
            return refuse(format!(
                "{name}: expected compute capability 8.0 or later, found {major}.{minor}"
            ));
        }
        let (image, found) = (Image::of(version), driver_release()?);
        image.refusal(found).map_or(Ok(()), Err)?;
        let limits = DeviceLimits {
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                as usize,
            warpgroups: image.has_warpgroups(),
            bulk: image.has_warpgroups(),
            ring: RINGS.contains(&version),
            overlap: OVERLAPS.contains(&version),
            fused: FUSED.contains(&version),
            ..DeviceLimits::unmeasured(attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )? as usize)
        };
        // SAFETY: the device exists; `drop` releases what is created here, also after an error.
        unsafe {
            let context = result::primary_ctx::retain(device).map_err(failed("context"))?;
            let mut opened = Self {
                name,
                limits,
                device,
                context,
                stream: null_mut(),
                module: null_mut(),
                functions: HashMap::new(),
                refusal: None,
                pinned: Mutex::new(Pinned { start: null_mut(), bytes: 0 }),
                capture: Mutex::default(),
                launched: Arc::default(),
            };
            opened.current()?;
            let kind = result::stream::StreamKind::NonBlocking;
            opened.stream = result::stream::create(kind).map_err(failed("stream"))?;
            let module = result::module::load_data(image.address());
            opened.module = module.map_err(image.failed(found))?;
            opened.functions = functions(opened.module, limits)?;
            if limits.bulk {
                opened.add_rings();
            }
            Ok(opened)
        }
    }

    fn capture(&self) -> MutexGuard<'_, Option<Vec<u64>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what a capture does not allow, before the driver makes the capture invalid.
    fn check_not_capturing(&self) -> Result<()> {
        match *self.capture() {
            Some(_) => refuse("a capture is in progress"),
            None => Ok(()),
        }
    }

    /// Makes the context current. What follows is no launch, unless [`Self::launched`] is set again.
    fn current(&self) -> Result<()> {
        self.launched.store(false, Ordering::Relaxed);
        // SAFETY: the context lives as long as this does.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("context"))
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this does.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("step"))
    }

    /// Calls `f` with `bytes` bytes of pinned memory.
    fn pinned<R>(&self, bytes: usize, f: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
        self.check_not_capturing()?;
        self.current()?;
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if pinned.bytes < bytes {
            self.wait()?;
            let capacity = bytes.next_power_of_two();
            // SAFETY: no copy is in progress; the old memory is freed once.
            unsafe {
                if !pinned.start.is_null() {
                    result::free_host(pinned.start.cast()).map_err(failed("pinned memory"))?;
                    pinned.start = null_mut();
                    pinned.bytes = 0;
                }
                let start = result::malloc_host(capacity, 0).map_err(failed("pinned memory"))?;
                pinned.start = start.cast();
                pinned.bytes = capacity;
                pinned.start.write_bytes(0, capacity);
            }
        }
        // SAFETY: allocated and written above; the lock is held.
        f(unsafe { std::slice::from_raw_parts_mut(pinned.start, bytes) })
    }
}

/// The driver's number of a device.
fn number_of(ordinal: u32) -> Result<i32> {
    let count = result::device::get_count().map_err(failed("no device"))?;
    let number = i32::try_from(ordinal).ok().filter(|number| *number < count);
    let Some(number) = number else {
        return refuse(match count {
            0 => "the NVIDIA driver found no device".to_owned(),
            1 => "the NVIDIA driver found one device, cuda:0".to_owned(),
            _ => format!("the NVIDIA driver found {count} devices, the last is cuda:{}", count - 1),
        });
    };
    Ok(number)
}

/// The major number of a device's compute capability.
fn major(device: sys::CUdevice) -> Result<i32> {
    let major = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    // SAFETY: the device exists.
    unsafe { result::device::get_attribute(device, major) }.map_err(failed("device"))
}

/// The newest release of CUDA that the driver supports.
fn driver_release() -> Result<Release> {
    let mut version = 0;
    // SAFETY: the driver writes one number.
    let read = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    read.map_err(failed("driver"))?;
    Ok(Release::of_driver(version))
}

/// The kernels of a module that the device can run, with their limits set.
///
/// # Safety
/// The module is loaded.
unsafe fn functions(
    module: sys::CUmodule,
    limits: DeviceLimits,
) -> Result<HashMap<&'static str, sys::CUfunction>> {
    // `add_rings` adds the kernels of bulk copies.
    let all = kernels().filter(|kernel| kernel.runs_on(limits) && !kernel.bulk);
    // SAFETY: by the caller's promise.
    all.map(|kernel| Ok((kernel.name, unsafe { function(module, kernel) }?))).collect()
}

/// A kernel of a module, with its limit set.
///
/// # Safety
/// The module is loaded.
unsafe fn function(module: sys::CUmodule, kernel: Kernel) -> Result<sys::CUfunction> {
    let name = CString::new(kernel.name).expect("kernel names contain no zero byte");
    // SAFETY: by the caller's promise.
    unsafe {
        let function = result::module::get_function(module, name);
        let function = function.map_err(failed(kernel.name))?;
        if kernel.shared > PLAIN_SHARED {
            use sys::CUfunction_attribute_enum as Attribute;
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            result::function::set_function_attribute(function, most, kernel.shared as i32)
                .map_err(failed(kernel.name))?;
        }
        Ok(function)
    }
}

impl Driver for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn lost(&self) -> Option<&str> {
        errors::lost()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.current()?;
        let (free, total) = result::mem_get_info().map_err(failed("memory"))?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.check_not_capturing()?;
        self.current()?;
        let (free, _) = result::mem_get_info().map_err(failed("memory"))?;
        let what = format!("{} MiB of device memory, {} MiB free", bytes >> 20, free >> 20);
        // SAFETY: allocations are at least 16 bytes long.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(failed(&what))?;
        match self.fill(address, 0, bytes) {
            Ok(()) => Ok(address),
            Err(error) => {
                self.free(address);
                Err(error)
            }
        }
    }

    fn free(&self, address: u64) {
        if let Some(later) = &mut *self.capture() {
            later.push(address);
            return;
        }
        // Running kernels may use the memory, so wait first. A failure here cannot be handled.
        if self.current().is_ok() && self.wait().is_ok() {
            // SAFETY: `allocate` returned it, and buffers free it once.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.check_not_capturing()?;
        self.current()?;
        // SAFETY: callers name a range of an allocation.
        unsafe { result::memset_d8_async(address, byte, bytes, self.stream) }
            .map_err(failed("memset"))
    }

    fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.pinned(bytes.len(), |pinned| {
            // An earlier upload may still read the pinned memory; after a download none does.
            self.wait()?;
            pinned.copy_from_slice(bytes);
            // SAFETY: callers name a range of an allocation; pinned memory stays until the copy is
            // done.
            unsafe { result::memcpy_htod_async(address, pinned, self.stream) }
                .map_err(failed("upload"))
        })
    }

    fn download(&self, bytes: &mut [u8], address: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.pinned(bytes.len(), |pinned| {
            // SAFETY: callers name a range of an allocation; the copy is awaited below.
            unsafe { result::memcpy_dtoh_async(pinned, address, self.stream) }
                .map_err(failed("download"))?;
            self.wait()?;
            bytes.copy_from_slice(pinned);
            Ok(())
        })
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.launch_as((kernel, false), grid, args) }
    }

    fn try_overlap(&self) -> Result<()> {
        self.overlapping()
    }

    unsafe fn launch_over(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        let over = self.launched.load(Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { self.launch_as((kernel, over), grid, args) }
    }

    fn begin_capture(&self) -> Result<()> {
        self.check_not_capturing()?;
        self.current()?;
        use sys::CUstreamCaptureMode as Mode;
        let mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as this does.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(failed("capture"))?;
        *self.capture() = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        let freed = self.capture().take();
        self.current()?;
        // SAFETY: the stream lives as long as this does.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        freed.into_iter().flatten().for_each(|address| self.free(address));
        let graph = graph.map_err(failed("capture"))?;
        if graph.is_null() {
            return refuse("CUDA: capture: no graph");
        }
        // SAFETY: the graph is destroyed here, its instance by its owner.
        unsafe {
            let flags = sys::CUgraphInstantiate_flags(0);
            let launches = result::graph::instantiate(graph, flags).map_err(failed("graph"));
            let _ = result::graph::destroy(graph);
            Ok(Box::new(CudaGraph {
                launches: launches?,
                context: self.context,
                stream: self.stream,
                launched: Arc::clone(&self.launched),
            }))
        }
    }

    fn tensor_map(&self, rows: MapRows) -> Result<TensorMap> {
        bulk::encode(rows)
    }

    fn bulk_refusal(&self) -> Option<String> {
        self.refusal.clone()
    }

    fn copy(&self, destination: u64, source: u64, bytes: usize) -> Result<()> {
        self.current()?;
        // SAFETY: callers name ranges of allocations.
        unsafe { result::memcpy_dtod_async(destination, source, bytes, self.stream) }
            .map_err(failed("copy"))
    }

    fn marks(&self) -> Result<Box<dyn Marks>> {
        let (needed, found) = (Release::TIMED, driver_release()?);
        if found < needed {
            return refuse(format!(
                "expected an NVIDIA driver for CUDA {needed} or later to measure times, found one for \
                 CUDA {found}"
            ));
        }
        let launched = Arc::clone(&self.launched);
        Ok(Box::new(Events {
            context: self.context,
            stream: self.stream,
            launched,
            all: Vec::new(),
        }))
    }
}

/// Events on the stream. The device is held by the caller.
struct Events {
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// As the device's.
    launched: Arc<AtomicBool>,
    all: Vec<sys::CUevent>,
}

// SAFETY: as the device: every call makes the context current.
unsafe impl Send for Events {}

impl Marks for Events {
    fn mark(&mut self) -> Result<()> {
        self.launched.store(false, Ordering::Relaxed);
        // SAFETY: context and stream live as long as the device; the event was just created.
        unsafe {
            result::ctx::set_current(self.context).map_err(failed("context"))?;
            let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
            let event = result::event::create(flags).map_err(failed("event"))?;
            self.all.push(event);
            result::event::record(event, self.stream).map_err(failed("event"))
        }
    }

    fn seconds(&mut self) -> Result<Vec<f64>> {
        // SAFETY: as above; the events are on one stream, and recorded.
        unsafe {
            result::ctx::set_current(self.context).map_err(failed("context"))?;
            result::stream::synchronize(self.stream).map_err(failed("step"))?;
        }
        let between = |pair: &[sys::CUevent]| {
            // SAFETY: as above.
            let ms = unsafe { result::event::elapsed(pair[0], pair[1]) };
            Ok(f64::from(ms.map_err(failed("event"))?) * 1e-3)
        };
        self.all.windows(2).map(between).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: each event is destroyed once. A failure here cannot be handled.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            for event in self.all.drain(..) {
                let _ = result::event::destroy(event);
            }
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let pinned = self.pinned.get_mut().map_or(null_mut(), |pinned| pinned.start);
        // SAFETY: buffers hold the device, so none is left; each resource is released once. A failure
        // here cannot be handled.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            if !self.stream.is_null() {
                let _ = result::stream::synchronize(self.stream);
            }
            if !pinned.is_null() {
                let _ = result::free_host(pinned.cast());
            }
            if !self.module.is_null() {
                let _ = result::module::unload(self.module);
            }
            if !self.stream.is_null() {
                let _ = result::stream::destroy(self.stream);
            }
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
