//! The state of the driver and of its one context.

use crate::image::{self, Kernel};
use crate::memory::Memory;
use crate::plan::{Plan, log};
use crate::stream::{Launch, Stream, Work};
use crate::{
    Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND,
    NOT_INITIALIZED, NOT_READY, OUT_OF_MEMORY, OUT_OF_RESOURCES, is_sticky,
};
use asynclane_cuda_lab::{Emulation, TensorSums};
use asynclane_kernels::device::{DeviceLimits, kernels};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Bytes of dynamic shared memory without an attribute, and with one.
const PLAIN_SHARED: u32 = 48 << 10;
const MOST_SHARED: i32 = 227 << 10;
/// Most blocks in the second and third dimension of a grid.
const MOST_BLOCKS: u32 = 65_535;
/// Bytes of an instantiated graph, and of each of its nodes. Real ones differ.
const GRAPH_BYTES: u64 = 64 << 10;
const NODE_BYTES: u64 = 1 << 10;
/// The handle of the context.
pub const CONTEXT: u64 = 0xC0;

thread_local! {
    /// The current context of this thread, 0 = none.
    pub static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// The condition of a function's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Init,
    /// A current context without a fault.
    Context,
}

/// A kernel that was looked up.
#[derive(Debug)]
struct Function {
    name: &'static str,
    kernel: Kernel,
    shared: u32,
}

/// The blocks of a launch, and the bytes of their dynamic shared memory.
pub struct Blocks {
    pub grid: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
    /// They may begin while a launch runs.
    pub over: bool,
}

pub struct Driver {
    pub plan: Plan,
    initialized: bool,
    retained: u32,
    /// The asynchronous error of a kernel, which every later call returns.
    pub lost: Option<Code>,
    pub device: Memory,
    pub host: Memory,
    modules: BTreeMap<u64, Vec<Kernel>>,
    functions: BTreeMap<u64, Function>,
    pub streams: BTreeMap<u64, Stream>,
    pub graphs: BTreeMap<u64, Vec<Work>>,
    instances: BTreeMap<u64, Vec<Work>>,
    /// When each event was reached.
    pub events: BTreeMap<u64, Option<Instant>>,
    /// Calls, and launches of kernels one by one and into captures.
    calls: BTreeMap<&'static str, u64>,
    handles: u64,
    pub emulated: Emulation,
}

/// Calls `f` on the driver, unless the call fails before.
pub fn call(
    name: &'static str,
    needs: Needs,
    f: impl FnOnce(&mut Driver) -> Result<(), Code>,
) -> Code {
    static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| Mutex::new(Driver::new()));
    let mut driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
    let done = driver.enter(name, needs).and_then(|()| f(&mut driver));
    done.err().unwrap_or(0)
}

impl Driver {
    fn new() -> Self {
        Self {
            plan: Plan::default(),
            initialized: false,
            retained: 0,
            lost: None,
            device: Memory::new("device memory"),
            host: Memory::new("pinned memory"),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            streams: BTreeMap::new(),
            graphs: BTreeMap::new(),
            instances: BTreeMap::new(),
            events: BTreeMap::new(),
            calls: BTreeMap::new(),
            handles: 0x1000,
            emulated: Emulation::new(1 << 40, DeviceLimits::default(), TensorSums::default()),
        }
    }

    fn enter(&mut self, name: &'static str, needs: Needs) -> Result<(), Code> {
        self.plan.refresh();
        *self.calls.entry(name).or_default() += 1;
        if let Some(code) = self.plan.failure(name) {
            if is_sticky(code) {
                self.lost = Some(code);
            }
            if name == "cuStreamEndCapture" {
                self.drop_captures();
            }
            return Err(code);
        }
        if needs != Needs::Nothing && !self.initialized {
            return Err(NOT_INITIALIZED);
        }
        if needs == Needs::Context {
            if CURRENT.get() != CONTEXT || self.retained == 0 {
                log(&format!("misuse: {name} without a current context"));
                return Err(INVALID_CONTEXT);
            }
            self.advance_some();
            self.alive()?;
        }
        Ok(())
    }

    /// The asynchronous error, if there was one.
    pub fn alive(&self) -> Result<(), Code> {
        self.lost.map_or(Ok(()), Err)
    }

    pub fn handle(&mut self) -> u64 {
        self.handles += 0x10;
        self.handles
    }

    pub fn init(&mut self) {
        self.initialized = true;
    }

    pub fn check_device(&self, device: i32) -> Result<(), Code> {
        let known = (0..self.plan.devices).contains(&device);
        known.then_some(()).ok_or(INVALID_DEVICE)
    }

    pub fn retain(&mut self) -> u64 {
        self.retained += 1;
        CONTEXT
    }

    /// Gives the context back. The last time, says what is left in it.
    pub fn release(&mut self) -> Result<(), Code> {
        self.retained = self.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if self.retained > 0 {
            return Ok(());
        }
        self.device.clear();
        self.host.clear();
        for (what, count) in [
            ("streams", self.streams.len()),
            ("modules", self.modules.len()),
            ("graphs", self.graphs.len()),
            ("instantiated graphs", self.instances.len()),
            ("events", self.events.len()),
        ] {
            if count > 0 {
                log(&format!("leak: {count} {what}"));
            }
        }
        self.streams.clear();
        self.modules.clear();
        self.functions.clear();
        self.graphs.clear();
        self.instances.clear();
        self.events.clear();
        self.lost = None;
        for (name, count) in std::mem::take(&mut self.calls) {
            log(&format!("calls: {name} {count}"));
        }
        log("released");
        Ok(())
    }

    fn bytes_of(work: &[Work]) -> u64 {
        GRAPH_BYTES + NODE_BYTES * work.len() as u64
    }

    pub fn free_bytes(&self) -> u64 {
        let graphs = self.instances.values().map(|all| Self::bytes_of(all));
        let used = self.device.used + graphs.sum::<u64>();
        self.plan.memory.saturating_sub(used)
    }

    pub fn allocate(&mut self, bytes: usize) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if bytes as u64 > self.free_bytes() {
            return Err(OUT_OF_MEMORY);
        }
        self.device.allocate(bytes).ok_or(OUT_OF_MEMORY)
    }

    /// Loads a module.
    ///
    /// # Safety
    /// As [`image::kernels`].
    pub unsafe fn load(&mut self, image: *const u8) -> Result<u64, Code> {
        // SAFETY: by the caller's promise.
        let kernels = unsafe { image::kernels(image, &self.plan) }?;
        let handle = self.handle();
        self.modules.insert(handle, kernels);
        Ok(handle)
    }

    pub fn unload(&mut self, module: u64) -> Result<(), Code> {
        self.modules.remove(&module).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn function(&mut self, module: u64, name: &str) -> Result<u64, Code> {
        let kernels = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let kernel = kernels.iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or(NOT_FOUND)?.clone();
        let handle = self.handle();
        let function = Function {
            // A handful per process.
            name: Box::leak(name.to_owned().into_boxed_str()),
            kernel,
            shared: PLAIN_SHARED,
        };
        self.functions.insert(handle, function);
        Ok(handle)
    }

    pub fn set_shared(&mut self, function: u64, bytes: i32) -> Result<(), Code> {
        let function = self.functions.get_mut(&function).ok_or(INVALID_HANDLE)?;
        if !(0..=MOST_SHARED).contains(&bytes) {
            return Err(INVALID_VALUE);
        }
        function.shared = bytes as u32;
        Ok(())
    }

    /// Checks that a function was looked up.
    pub fn known(&self, function: u64) -> Result<(), Code> {
        self.functions.get(&function).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    /// Clusters of two blocks of a kernel that run at a time.
    pub fn pairs(&self, function: u64) -> Result<i32, Code> {
        self.known(function).map(|()| 2)
    }

    /// Adds a launch to a stream.
    ///
    /// # Safety
    /// `args` has as many bytes as the kernel's argument.
    pub unsafe fn launch(
        &mut self,
        function: u64,
        blocks: &Blocks,
        stream: u64,
        args: *const u8,
    ) -> Result<(), Code> {
        let &Blocks { grid, threads: block, shared, over } = blocks;
        let function = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let threads = block[0].saturating_mul(block[1]).saturating_mul(block[2]);
        let beyond = grid[1] > MOST_BLOCKS || grid[2] > MOST_BLOCKS || grid[0] > i32::MAX as u32;
        let pairs = function.name.contains("_pair_") && !grid[0].is_multiple_of(2);
        if grid.contains(&0) || threads == 0 || beyond || pairs || shared > function.shared {
            log(&format!("misuse: {} with {grid:?} blocks", function.name));
            return Err(INVALID_VALUE);
        }
        if threads > function.kernel.threads {
            return Err(OUT_OF_RESOURCES);
        }
        let bytes = function.kernel.bytes;
        let mut words = vec![0_u64; bytes.div_ceil(8)];
        // SAFETY: by the caller's promise; the words have room.
        unsafe { words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(args, bytes) };
        *self.calls.entry(function.name).or_default() += 1;
        let known = kernels().find(|kernel| kernel.name == function.name);
        let kernel =
            asynclane_kernels::device::Kernel { threads, shared, ..known.ok_or(NOT_FOUND)? };
        let launch = Launch { kernel, grid, args: words, bytes, over };
        self.add(stream, Work::Kernel(Arc::new(launch)))
    }

    pub fn instantiate(&mut self, graph: u64) -> Result<u64, Code> {
        let work = self.graphs.get(&graph).ok_or(INVALID_HANDLE)?.clone();
        if Self::bytes_of(&work) > self.free_bytes() {
            return Err(OUT_OF_MEMORY);
        }
        let handle = self.handle();
        self.instances.insert(handle, work);
        Ok(handle)
    }

    pub fn launch_graph(&mut self, instance: u64, stream: u64) -> Result<(), Code> {
        let work = self.instances.get(&instance).ok_or(INVALID_HANDLE)?;
        for piece in work.clone() {
            self.add(stream, piece)?;
        }
        Ok(())
    }

    pub fn destroy_graph(&mut self, graph: u64) -> Result<(), Code> {
        self.graphs.remove(&graph).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn destroy_instance(&mut self, instance: u64) -> Result<(), Code> {
        let gone = self.instances.remove(&instance);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    /// Milliseconds between two events that were reached.
    pub fn elapsed(&self, events: [u64; 2]) -> Result<f32, Code> {
        let time = |event: u64| self.events.get(&event).ok_or(INVALID_HANDLE);
        let [start, end] = [time(events[0])?, time(events[1])?];
        let (start, end) = (start.ok_or(NOT_READY)?, end.ok_or(NOT_READY)?);
        Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3)
    }
}
