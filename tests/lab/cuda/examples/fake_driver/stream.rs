//! Streams: work that waits, and captures.

use crate::driver::Driver;
use crate::plan::log;
use crate::{
    CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, Code, ILLEGAL_ADDRESS,
    ILLEGAL_STATE, INVALID_HANDLE,
};
use asynclane_kernels::device::{Driver as _, Kernel};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{ThreadId, current};
use std::time::Instant;

/// One piece of work.
#[derive(Clone, Debug)]
pub enum Work {
    Kernel(Arc<Launch>),
    Fill {
        destination: u64,
        byte: u8,
        bytes: usize,
    },
    /// From pinned memory, which is read when the copy runs. `seen` is its content at the call.
    Upload {
        destination: u64,
        source: u64,
        seen: Arc<[u8]>,
    },
    /// To pinned memory.
    Download {
        destination: u64,
        source: u64,
        bytes: usize,
    },
    /// In device memory.
    Copy {
        destination: u64,
        source: u64,
        bytes: usize,
    },
    /// Takes the time.
    Event(u64),
}

/// A launch with a copy of its argument.
#[derive(Debug)]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: [u32; 3],
    /// Words of eight bytes, the alignment of arguments.
    pub args: Vec<u64>,
    pub bytes: usize,
    /// It may begin while a launch runs that comes just before.
    pub over: bool,
}

/// The capture of a stream.
#[derive(Debug)]
enum Capture {
    Valid(ThreadId, Vec<Work>),
    Invalid(ThreadId),
}

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    waiting: VecDeque<Work>,
    capture: Option<Capture>,
}

impl Stream {
    /// True if nothing waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if this thread captures on it.
    fn is_captured_here(&self) -> bool {
        match &self.capture {
            Some(Capture::Valid(thread, _) | Capture::Invalid(thread)) => *thread == current().id(),
            None => false,
        }
    }

    fn invalidate(&mut self) {
        if let Some(Capture::Valid(thread, _)) = self.capture {
            self.capture = Some(Capture::Invalid(thread));
        }
    }

    fn add(&mut self, work: Work) -> Result<(), Code> {
        match &mut self.capture {
            None => self.waiting.push_back(work),
            Some(Capture::Valid(_, all)) => all.push(work),
            Some(Capture::Invalid(_)) => return Err(CAPTURE_INVALIDATED),
        }
        Ok(())
    }
}

impl Driver {
    fn stream(&mut self, handle: u64) -> Result<&mut Stream, Code> {
        self.streams.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    /// True if nothing waits on a stream.
    pub fn is_idle(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(Stream::is_idle)
    }

    /// Adds work to a stream, or to what it captures.
    pub fn add(&mut self, stream: u64, work: Work) -> Result<(), Code> {
        self.stream(stream)?.add(work)
    }

    /// Invalidates the captures of this thread: the calling function must not be called during one.
    pub fn not_in_capture(&mut self, what: &str) -> Result<(), Code> {
        let mut captures = self.streams.values_mut();
        let Some(stream) = captures.find(|stream| stream.is_captured_here()) else {
            return Ok(());
        };
        stream.invalidate();
        log(&format!("misuse: {what} during a capture"));
        Err(CAPTURE_UNSUPPORTED)
    }

    pub fn begin_capture(&mut self, handle: u64) -> Result<(), Code> {
        let stream = self.stream(handle)?;
        if stream.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        stream.capture = Some(Capture::Valid(current().id(), Vec::new()));
        Ok(())
    }

    /// Ends the captures of this thread without a graph.
    pub fn drop_captures(&mut self) {
        let captures = self.streams.values_mut();
        for stream in captures.filter(|stream| stream.is_captured_here()) {
            stream.capture = None;
        }
    }

    /// The handle of the captured graph.
    pub fn end_capture(&mut self, handle: u64) -> Result<u64, Code> {
        let stream = self.stream(handle)?;
        if stream.capture.is_some() && !stream.is_captured_here() {
            stream.invalidate();
            return Err(CAPTURE_WRONG_THREAD);
        }
        match stream.capture.take() {
            None => Err(ILLEGAL_STATE),
            Some(Capture::Invalid(_)) => Err(CAPTURE_INVALIDATED),
            Some(Capture::Valid(_, all)) => {
                let graph = self.handle();
                self.graphs.insert(graph, all);
                Ok(graph)
            }
        }
    }

    /// True if all work of a stream is done; does some of it. Called again until it is.
    pub fn is_done(&mut self, handle: u64) -> Result<bool, Code> {
        let stream = self.stream(handle)?;
        if stream.capture.is_some() {
            stream.invalidate();
            log("misuse: cuStreamSynchronize of a stream that captures");
            return Err(CAPTURE_UNSUPPORTED);
        }
        if !self.plan.hangs {
            self.advance(handle, usize::MAX);
            self.emulated.finish();
        }
        self.alive()?;
        Ok(self.stream(handle)?.is_idle())
    }

    /// Does some of the work that waits, at a moment that nobody asked for.
    pub fn advance_some(&mut self) {
        let chance = self.plan.next();
        if self.plan.hangs || !chance.is_multiple_of(4) {
            return;
        }
        let handles: Vec<u64> = self.streams.keys().copied().collect();
        for handle in handles {
            self.advance(handle, chance as usize / 4 % 4);
        }
    }

    /// Does up to `most` pieces of a stream's work. After a fault nothing more is done.
    fn advance(&mut self, handle: u64, most: usize) {
        for _ in 0..most {
            let next = self.streams.get_mut(&handle).map(|stream| stream.waiting.pop_front());
            let Some(Some(work)) = next else { return };
            if self.alive().is_err() {
                continue;
            }
            if let Err(code) = self.run(&work) {
                self.lost = Some(code);
            }
        }
    }

    fn run(&mut self, work: &Work) -> Result<(), Code> {
        if !matches!(work, Work::Kernel(_)) {
            self.emulated.finish();
        }
        match work {
            Work::Kernel(launch) => self.kernel(launch),
            Work::Fill { destination, byte, bytes } => {
                self.on_device(*destination, *bytes)?;
                // SAFETY: the range lies in an allocation.
                unsafe { (*destination as *mut u8).write_bytes(*byte, *bytes) };
                Ok(())
            }
            Work::Upload { destination, source, seen } => {
                self.on_device(*destination, seen.len())?;
                self.pinned(*source, seen.len())?;
                // SAFETY: both ranges lie in allocations.
                unsafe {
                    let now = std::slice::from_raw_parts(*source as *const u8, seen.len());
                    if now != &**seen {
                        log("misuse: pinned memory was written before a copy had read it");
                    }
                    (*destination as *mut u8).copy_from_nonoverlapping(now.as_ptr(), now.len());
                }
                Ok(())
            }
            Work::Download { destination, source, bytes } => {
                self.on_device(*source, *bytes)?;
                self.pinned(*destination, *bytes)?;
                // SAFETY: both ranges lie in allocations.
                unsafe {
                    (*destination as *mut u8).copy_from_nonoverlapping(*source as *const u8, *bytes)
                };
                Ok(())
            }
            Work::Copy { destination, source, bytes } => {
                self.on_device(*source, *bytes)?;
                self.on_device(*destination, *bytes)?;
                // SAFETY: both ranges lie in allocations.
                unsafe { (*destination as *mut u8).copy_from(*source as *const u8, *bytes) };
                Ok(())
            }
            Work::Event(event) => {
                if let Some(time) = self.events.get_mut(event) {
                    *time = Some(Instant::now());
                }
                Ok(())
            }
        }
    }

    fn kernel(&mut self, launch: &Launch) -> Result<(), Code> {
        if let Some(code) = self.plan.fault() {
            return Err(code);
        }
        if launch.args.iter().any(|word| self.device.was_freed(*word)) {
            log(&format!("misuse: {} has the address of freed memory", launch.kernel.name));
            return Err(ILLEGAL_ADDRESS);
        }
        let Launch { kernel, grid, args, bytes, over } = launch;
        // SAFETY: as many bytes as the words have.
        let args = unsafe { std::slice::from_raw_parts(args.as_ptr().cast::<u8>(), *bytes) };
        // SAFETY: the caller of the driver has promised it.
        let ran = unsafe {
            match over {
                true => self.emulated.launch_over(*kernel, *grid, args),
                false => self.emulated.launch(*kernel, *grid, args),
            }
        };
        ran.map_err(|error| {
            log(&format!("misuse: {error}"));
            ILLEGAL_ADDRESS
        })
    }

    fn on_device(&self, address: u64, bytes: usize) -> Result<(), Code> {
        if self.device.holds(address, bytes) {
            return Ok(());
        }
        log(&format!("misuse: {bytes} bytes at {address:#x} are no device memory"));
        Err(ILLEGAL_ADDRESS)
    }

    fn pinned(&self, address: u64, bytes: usize) -> Result<(), Code> {
        if self.host.holds(address, bytes) {
            return Ok(());
        }
        log("misuse: pinned memory was freed before a copy was done");
        Err(ILLEGAL_ADDRESS)
    }
}
