//! Misuse that the fake driver finds and a plain emulation cannot show.

use crate::isolated::isolated;
use cudarc::driver::sys::CUresult;
use cudarc::driver::{DriverError, result, sys};
use std::ffi::c_void;

type Done<T> = Result<T, DriverError>;

/// A context with a stream, released at the end.
struct Context {
    device: sys::CUdevice,
    stream: sys::CUstream,
}

impl Context {
    fn new() -> Self {
        result::init().unwrap();
        let device = result::device::get(0).unwrap();
        // SAFETY: the device exists.
        unsafe {
            let context = result::primary_ctx::retain(device).unwrap();
            result::ctx::set_current(context).unwrap();
        }
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = result::stream::create(kind).unwrap();
        Self { device, stream }
    }

    fn wait(&self) -> Done<()> {
        // SAFETY: the stream exists.
        unsafe { result::stream::synchronize(self.stream) }
    }

    fn capture(&self) -> Done<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream exists.
        unsafe { result::stream::begin_capture(self.stream, mode) }
    }

    fn captured(&self) -> Done<sys::CUgraph> {
        // SAFETY: the stream exists.
        unsafe { result::stream::end_capture(self.stream) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: both exist and are used no more.
        unsafe {
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

fn device_memory(bytes: usize) -> Done<u64> {
    // SAFETY: memory of the device is not read before it is written.
    unsafe { result::malloc_sync(bytes) }
}

fn pinned(bytes: usize) -> &'static mut [u8] {
    // SAFETY: allocated with this length, and written.
    unsafe {
        let start = result::malloc_host(bytes, 0).unwrap().cast::<u8>();
        start.write_bytes(0, bytes);
        std::slice::from_raw_parts_mut(start, bytes)
    }
}

fn code<T>(done: Done<T>) -> CUresult {
    done.err().expect("an error").0
}

#[test]
fn pinned_memory_is_read_late() {
    isolated("fake::pinned_memory_is_read_late", "seed 5", |_| {
        let context = Context::new();
        let memory = device_memory(64).unwrap();
        let host = pinned(64);
        // SAFETY: both ranges exist.
        unsafe {
            host.fill(1);
            result::memcpy_htod_async(memory, host, context.stream).unwrap();
            // The copy has not run.
            host.fill(2);
            context.wait().unwrap();
            host.fill(0);
            result::memcpy_dtoh_async(host, memory, context.stream).unwrap();
            assert_eq!(host[0], 0xFF, "read too early");
            context.wait().unwrap();
        }
        assert_eq!(host[0], 2);
    })
    .tells("misuse: pinned memory was written before a copy had read it");
}

#[test]
fn what_is_left_is_told() {
    let log = isolated("fake::what_is_left_is_told", "", |_| {
        let context = Context::new();
        device_memory(64).unwrap();
        pinned(32);
        context.capture().unwrap();
        context.captured().unwrap();
    });
    log.tells("leak: 1 times device memory, 64 bytes\nleak: 1 times pinned memory, 32 bytes\nleak: 1 graphs");
}

#[test]
fn calls_need_a_current_context() {
    isolated("fake::calls_need_a_current_context", "", |_| {
        assert_eq!(code(device_memory(64)), CUresult::CUDA_ERROR_NOT_INITIALIZED);
        let _on = Context::new();
        device_memory(64).unwrap();
        let other = std::thread::spawn(|| code(device_memory(64)));
        assert_eq!(other.join().unwrap(), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    })
    .tells("misuse: cuMemAlloc_v2 without a current context");
}

#[test]
fn an_illegal_call_invalidates_a_capture() {
    isolated("fake::an_illegal_call_invalidates_a_capture", "", |_| {
        let context = Context::new();
        let memory = device_memory(64).unwrap();
        // SAFETY: the memory exists.
        let fill = || unsafe { result::memset_d8_async(memory, 1, 64, context.stream) };
        assert_eq!(code(context.captured()), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        context.capture().unwrap();
        assert_eq!(code(context.capture()), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        fill().unwrap();
        assert_eq!(code(context.wait()), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(code(fill()), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(code(context.captured()), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        context.capture().unwrap();
        let allocated = device_memory(64);
        assert_eq!(code(allocated), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(code(context.captured()), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        fill().unwrap();
        context.wait().unwrap();
    })
    .tells("misuse: cuStreamSynchronize of a stream that captures");
}

#[test]
fn a_graph_runs_after_its_launch_and_not_after_its_end() {
    let name = "fake::a_graph_runs_after_its_launch_and_not_after_its_end";
    isolated(name, "", |plan| {
        let context = Context::new();
        let (memory, host) = (device_memory(64).unwrap(), pinned(64));
        // SAFETY: memory, stream and graphs exist where the driver does not refuse them.
        unsafe {
            result::memset_d8_async(memory, 7, 64, context.stream).unwrap();
            context.capture().unwrap();
            result::memset_d8_async(memory, 9, 64, context.stream).unwrap();
            let graph = context.captured().unwrap();
            let flags = || sys::CUgraphInstantiate_flags(0);
            plan.write("fail cuGraphInstantiateWithFlags 1 2");
            let refused = result::graph::instantiate(graph, flags());
            assert_eq!(code(refused), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            let before = result::mem_get_info().unwrap().0;
            let instance = result::graph::instantiate(graph, flags()).unwrap();
            assert!(result::mem_get_info().unwrap().0 < before, "a graph takes memory");
            result::graph::destroy(graph).unwrap();
            let mut read = || {
                result::memcpy_dtoh_async(host, memory, context.stream).unwrap();
                context.wait().unwrap();
                host[0]
            };
            assert_eq!(read(), 7);
            result::graph::launch(instance, context.stream).unwrap();
            assert_eq!(read(), 9);
            result::graph::exec_destroy(instance).unwrap();
            let ended = result::graph::launch(instance, context.stream);
            assert_eq!(code(ended), CUresult::CUDA_ERROR_INVALID_HANDLE);
            result::free_sync(memory).unwrap();
            result::free_host(host.as_mut_ptr().cast()).unwrap();
        }
    })
    .clean();
}

#[test]
fn events_are_reached_when_the_work_before_them_is_done() {
    let name = "fake::events_are_reached_when_the_work_before_them_is_done";
    isolated(name, "seed 5", |plan| {
        let context = Context::new();
        let (source, destination, host) =
            (device_memory(64).unwrap(), device_memory(64).unwrap(), pinned(64));
        // SAFETY: memory, stream and events exist until they are released at the end.
        unsafe {
            plan.write("hang");
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap();
            let (start, end) = (event(), event());
            result::event::record(start, context.stream).unwrap();
            result::memset_d8_async(source, 6, 64, context.stream).unwrap();
            result::memcpy_dtod_async(destination, source, 64, context.stream).unwrap();
            result::event::record(end, context.stream).unwrap();
            let early = result::event::elapsed(start, end);
            assert_eq!(code(early), CUresult::CUDA_ERROR_NOT_READY);
            plan.write("");
            result::memcpy_dtoh_async(host, destination, context.stream).unwrap();
            context.wait().unwrap();
            assert!(result::event::elapsed(start, end).unwrap() >= 0.0);
            assert_eq!(host[63], 6);
            result::event::destroy(start).unwrap();
            result::event::destroy(end).unwrap();
            result::free_sync(source).unwrap();
            result::free_sync(destination).unwrap();
            result::free_host(host.as_mut_ptr().cast()).unwrap();
        }
    })
    .clean();
}

#[test]
fn freed_memory_and_ranges_beyond_an_allocation_are_refused() {
    let name = "fake::freed_memory_and_ranges_beyond_an_allocation_are_refused";
    isolated(name, "seed 2", |_| {
        let context = Context::new();
        let memory = device_memory(64).unwrap();
        // SAFETY: the driver refuses what does not exist.
        unsafe {
            let beyond = result::memset_d8_async(memory, 0, 65, context.stream);
            assert_eq!(code(beyond), CUresult::CUDA_ERROR_INVALID_VALUE);
            result::memset_d8_async(memory, 0, 64, context.stream).unwrap();
            // Work may still wait for this memory.
            result::free_sync(memory).unwrap();
        }
        assert_eq!(code(context.wait()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let later = device_memory(64);
        assert_eq!(code(later), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "it stays");
        // SAFETY: an image that is none.
        let loaded = unsafe { result::module::load_data(c"no image".as_ptr().cast::<c_void>()) };
        assert_eq!(code(loaded), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    })
    .tells("are no device memory");
}
