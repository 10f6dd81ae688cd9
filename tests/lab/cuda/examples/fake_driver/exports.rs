//! The exported functions, with the names and arguments of the driver's.

use crate::driver::{Blocks, CONTEXT, CURRENT, Driver, Needs, call};
use crate::plan::log;
use crate::stream::Work;
use crate::{Code, INVALID_HANDLE, INVALID_VALUE, words};
use asynclane_kernels::device::{BOX_ROWS, MapRows, TensorMap, host_map};
use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

/// `CU_DEVICE_ATTRIBUTE_*`.
const SHARED_PER_BLOCK: u32 = 97;
const MULTIPROCESSORS: u32 = 16;
const MAJOR: u32 = 75;
const MINOR: u32 = 76;
const CLUSTERS: u32 = 120;
/// `CU_TENSOR_MAP_DATA_TYPE_BFLOAT16`, and the swizzle of rows of 128 bytes.
const BF16: u32 = 9;
const SWIZZLED: u32 = 3;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, and `_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const SERIALIZATION: u32 = 6;
/// Time between two looks at work that hangs.
const LOOK: Duration = Duration::from_millis(5);
const NAME: &[u8] = b"Fake device\0";

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    threads: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`, whose value is a number.
#[repr(C, align(8))]
struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// Writes a result.
///
/// # Safety
/// `out` is null, or valid for a write.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Makes every block that the macro writes an unsafe one, also those that read no pointer.
///
/// # Safety
/// None is needed.
unsafe fn used(_: ()) {}

/// Functions of the driver: their arguments, what they need, and what they do.
macro_rules! export {
    ($($name:ident($($arg:ident: $kind:ty),*) $needs:ident |$driver:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> Code {
            call(stringify!($name), Needs::$needs, |$driver: &mut Driver| {
                // SAFETY: the caller of a driver promises that its arguments are valid.
                unsafe {
                    used(());
                    $body
                }
            })
        }
    )*};
}

export! {
    cuInit(_flags: u32) Nothing |d| { d.init(); Ok(()) };
    cuDriverGetVersion(out: *mut i32) Nothing |d| put(out, d.plan.version);
    cuGetErrorName(code: Code, out: *mut *const c_char) Nothing |_d| put_words(code, 0, out);
    cuGetErrorString(code: Code, out: *mut *const c_char) Nothing |_d| put_words(code, 1, out);
    cuDeviceGetCount(out: *mut i32) Init |d| put(out, d.plan.devices);
    cuDeviceGet(out: *mut i32, ordinal: i32) Init |d| { d.check_device(ordinal)?; put(out, ordinal) };
    cuDeviceGetName(out: *mut c_char, room: i32, ordinal: i32) Init |d| {
        d.check_device(ordinal)?;
        let bytes = NAME.len().min(usize::try_from(room).unwrap_or(0));
        out.cast::<u8>().copy_from_nonoverlapping(NAME.as_ptr(), bytes);
        Ok(())
    };
    cuDeviceGetAttribute(out: *mut i32, which: u32, ordinal: i32) Init |d| {
        d.check_device(ordinal)?;
        put(out, match which {
            MAJOR => d.plan.capability.0,
            MINOR => d.plan.capability.1,
            MULTIPROCESSORS => 4,
            SHARED_PER_BLOCK => 227 << 10,
            CLUSTERS => i32::from(d.plan.capability >= (9, 0)),
            _ => return Err(INVALID_VALUE),
        })
    };
    cuDevicePrimaryCtxRetain(out: *mut u64, ordinal: i32) Init |d| {
        d.check_device(ordinal)?;
        put(out, d.retain())
    };
    cuDevicePrimaryCtxRelease_v2(ordinal: i32) Init |d| { d.check_device(ordinal)?; d.release() };
    cuCtxSetCurrent(context: u64) Init |_d| {
        if context != 0 && context != CONTEXT {
            return Err(INVALID_HANDLE);
        }
        CURRENT.set(context);
        Ok(())
    };
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) Context |d| {
        put(free, d.free_bytes() as usize)?;
        put(total, d.plan.memory as usize)
    };
    cuMemAlloc_v2(out: *mut u64, bytes: usize) Context |d| {
        d.not_in_capture("cuMemAlloc")?;
        put(out, d.allocate(bytes)?)
    };
    cuMemFree_v2(address: u64) Context |d| { d.not_in_capture("cuMemFree")?; d.device.free(address) };
    cuMemHostAlloc(out: *mut u64, bytes: usize, _flags: u32) Context |d| {
        d.not_in_capture("cuMemHostAlloc")?;
        put(out, d.host.allocate(bytes).ok_or(crate::OUT_OF_MEMORY)?)
    };
    cuMemFreeHost(address: u64) Context |d| { d.not_in_capture("cuMemFreeHost")?; d.host.free(address) };
    cuMemsetD8Async(destination: u64, byte: u8, bytes: usize, stream: u64) Context |d| {
        if !d.device.holds(destination, bytes) {
            return Err(INVALID_VALUE);
        }
        d.add(stream, Work::Fill { destination, byte, bytes })
    };
    cuMemcpyHtoDAsync_v2(destination: u64, source: *const u8, bytes: usize, stream: u64) Context |d| {
        // Copies from other memory are not asynchronous; nothing here makes one.
        if !d.device.holds(destination, bytes) || !d.host.holds(source as u64, bytes) {
            return Err(INVALID_VALUE);
        }
        let seen = std::slice::from_raw_parts(source, bytes).into();
        d.add(stream, Work::Upload { destination, source: source as u64, seen })
    };
    cuMemcpyDtoHAsync_v2(destination: *mut u8, source: u64, bytes: usize, stream: u64) Context |d| {
        if !d.device.holds(source, bytes) || !d.host.holds(destination as u64, bytes) {
            return Err(INVALID_VALUE);
        }
        // Who reads it too early finds this. Copies that wait may still read it.
        if d.is_idle(stream) {
            destination.write_bytes(0xFF, bytes);
        }
        d.add(stream, Work::Download { destination: destination as u64, source, bytes })
    };
    cuMemcpyDtoDAsync_v2(destination: u64, source: u64, bytes: usize, stream: u64) Context |d| {
        if !d.device.holds(source, bytes) || !d.device.holds(destination, bytes) {
            return Err(INVALID_VALUE);
        }
        d.add(stream, Work::Copy { destination, source, bytes })
    };
    cuEventCreate(out: *mut u64, _flags: u32) Context |d| {
        let handle = d.handle();
        d.events.insert(handle, None);
        put(out, handle)
    };
    cuEventRecord(event: u64, stream: u64) Context |d| {
        *d.events.get_mut(&event).ok_or(INVALID_HANDLE)? = None;
        d.add(stream, Work::Event(event))
    };
    cuEventElapsedTime_v2(out: *mut f32, start: u64, end: u64) Context |d| {
        put(out, d.elapsed([start, end])?)
    };
    cuEventDestroy_v2(event: u64) Init |d| {
        d.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    };
    cuModuleLoadData(out: *mut u64, image: *const u8) Context |d| {
        d.not_in_capture("cuModuleLoadData")?;
        put(out, d.load(image)?)
    };
    cuModuleUnload(module: u64) Context |d| d.unload(module);
    cuModuleGetFunction(out: *mut u64, module: u64, name: *const c_char) Context |d| {
        let name = CStr::from_ptr(name).to_string_lossy();
        put(out, d.function(module, &name)?)
    };
    cuFuncSetAttribute(function: u64, which: u32, value: i32) Context |d| {
        match which {
            DYNAMIC_SHARED => d.set_shared(function, value),
            CARVEOUT if (-1..=100).contains(&value) => d.known(function),
            _ => Err(INVALID_VALUE),
        }
    };
    cuOccupancyMaxActiveClusters(out: *mut i32, function: u64, _config: *const c_void) Context |d| {
        put(out, d.pairs(function)?)
    };
    cuTensorMapEncodeTiled(
        out: *mut TensorMap, kind: u32, rank: u32, address: u64, sizes: *const u64, strides: *const u64,
        copied: *const u32, steps: *const u32, interleave: u32, swizzle: u32, _promotion: u32, fill: u32
    ) Context |d| {
        let [inner, rows] = sizes.cast::<[u64; 2]>().read();
        let (stride, copied) = (strides.read(), copied.cast::<[u32; 2]>().read());
        // The maps that the kernels are made for; a driver takes others too.
        let known = (kind, rank, interleave, swizzle, fill) == (BF16, 2, 0, SWIZZLED, 0);
        let whole = copied == [64, BOX_ROWS as u32] && steps.cast::<[u32; 2]>().read() == [1; 2];
        let aligned = address.is_multiple_of(16) && stride.is_multiple_of(16) && (out as u64).is_multiple_of(64);
        if !known || !whole || !aligned || rows == 0 || stride != 2 * inner {
            return Err(INVALID_VALUE);
        }
        if !d.device.holds(address, (rows * stride) as usize) {
            log("misuse: a tensor map of no device memory");
            return Err(INVALID_VALUE);
        }
        let rows = MapRows { address, rows: rows as usize, inner: inner as usize };
        put(out, host_map(rows))
    };
    cuStreamCreate(out: *mut u64, _flags: u32) Context |d| {
        let handle = d.handle();
        d.streams.insert(handle, Default::default());
        put(out, handle)
    };
    cuStreamDestroy_v2(stream: u64) Context |d| {
        d.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
    };
    cuLaunchKernel(
        function: u64,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: u64,
        args: *const *const u8, _extra: *const c_void
    ) Context |d| {
        let blocks = Blocks {
            grid: [grid_x, grid_y, grid_z],
            threads: [block_x, block_y, block_z],
            shared,
            over: false,
        };
        d.launch(function, &blocks, stream, *args)
    };
    cuLaunchKernelEx(
        config: *const Config, function: u64, args: *const *const u8, _extra: *const c_void
    ) Context |d| {
        let Config { grid, threads, shared, stream, .. } = *config;
        let attributes = std::slice::from_raw_parts((*config).attributes, (*config).count as usize);
        let [Attribute { id: SERIALIZATION, value: [over, ..], .. }] = attributes else {
            return Err(INVALID_VALUE);
        };
        let blocks = Blocks { grid, threads, shared, over: *over != 0 };
        d.launch(function, &blocks, stream, *args)
    };
    cuStreamBeginCapture_v2(stream: u64, _mode: u32) Context |d| d.begin_capture(stream);
    cuStreamEndCapture(stream: u64, out: *mut u64) Context |d| {
        put(out, 0)?;
        put(out, d.end_capture(stream)?)
    };
    cuGraphInstantiateWithFlags(out: *mut u64, graph: u64, _flags: u64) Context |d| {
        put(out, d.instantiate(graph)?)
    };
    cuGraphDestroy(graph: u64) Init |d| d.destroy_graph(graph);
    cuGraphExecDestroy(instance: u64) Init |d| d.destroy_instance(instance);
    cuGraphLaunch(instance: u64, stream: u64) Context |d| d.launch_graph(instance, stream);
}

/// # Safety
/// As [`put`].
unsafe fn put_words(code: Code, which: usize, out: *mut *const c_char) -> Result<(), Code> {
    let words = words(code).ok_or(INVALID_VALUE)?;
    // SAFETY: by the caller's promise.
    unsafe { put(out, words[which].as_ptr().cast()) }
}

/// Does all work of a stream; waits while it hangs.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(stream: u64) -> Code {
    loop {
        let mut done = false;
        let code = call("cuStreamSynchronize", Needs::Context, |driver| {
            done = driver.is_done(stream)?;
            Ok(())
        });
        if code != 0 || done {
            return code;
        }
        std::thread::sleep(LOOK);
    }
}
