//! A `libcuda.so.1` for tests: the functions of a CUDA driver that this crate calls, over kernels that
//! run on the host.
//!
//! Unlike the emulation it behaves as a driver does: work on a stream waits until it is awaited or
//! until a deterministic point before; captures have states; a fault of a kernel is reported by a later
//! call and stays; calls without a current context fail; and what is left when the context is released
//! is reported.
//!
//! `FAKE_CUDA_PLAN` names a file of settings and errors to come ([`plan`]), which is read again at
//! every call. `FAKE_CUDA_LOG` names a file that gets a line for every misuse and leak.
//!
//! Real drivers differ in what they tolerate. This one refuses what the documentation forbids.

mod driver;
mod exports;
mod image;
mod memory;
mod plan;
mod stream;

/// A `CUresult`.
type Code = u32;

const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const NOT_INITIALIZED: Code = 3;
const INVALID_DEVICE: Code = 101;
const INVALID_IMAGE: Code = 200;
const INVALID_CONTEXT: Code = 201;
const NO_BINARY: Code = 209;
const UNSUPPORTED_PTX: Code = 222;
const INVALID_HANDLE: Code = 400;
const ILLEGAL_STATE: Code = 401;
const NOT_FOUND: Code = 500;
const NOT_READY: Code = 600;
const ILLEGAL_ADDRESS: Code = 700;
const OUT_OF_RESOURCES: Code = 701;
const CAPTURE_UNSUPPORTED: Code = 900;
const CAPTURE_INVALIDATED: Code = 901;
const CAPTURE_WRONG_THREAD: Code = 908;

/// Name and description of a code; C strings.
fn words(code: Code) -> Option<[&'static str; 2]> {
    let words = match code {
        0 => ["CUDA_SUCCESS\0", "no error\0"],
        INVALID_VALUE => ["CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"],
        OUT_OF_MEMORY => ["CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"],
        NOT_INITIALIZED => ["CUDA_ERROR_NOT_INITIALIZED\0", "initialization error\0"],
        INVALID_DEVICE => ["CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"],
        INVALID_IMAGE => ["CUDA_ERROR_INVALID_IMAGE\0", "device kernel image is invalid\0"],
        INVALID_CONTEXT => ["CUDA_ERROR_INVALID_CONTEXT\0", "invalid device context\0"],
        NO_BINARY => [
            "CUDA_ERROR_NO_BINARY_FOR_GPU\0",
            "no kernel image is available for execution on the device\0",
        ],
        214 => ["CUDA_ERROR_ECC_UNCORRECTABLE\0", "uncorrectable ECC error encountered\0"],
        UNSUPPORTED_PTX => [
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION\0",
            "the provided PTX was compiled with an unsupported toolchain.\0",
        ],
        INVALID_HANDLE => ["CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"],
        ILLEGAL_STATE => [
            "CUDA_ERROR_ILLEGAL_STATE\0",
            "the operation cannot be performed in the present state\0",
        ],
        NOT_FOUND => ["CUDA_ERROR_NOT_FOUND\0", "named symbol not found\0"],
        NOT_READY => ["CUDA_ERROR_NOT_READY\0", "device not ready\0"],
        ILLEGAL_ADDRESS => {
            ["CUDA_ERROR_ILLEGAL_ADDRESS\0", "an illegal memory access was encountered\0"]
        }
        OUT_OF_RESOURCES => {
            ["CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\0", "too many resources requested for launch\0"]
        }
        719 => ["CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"],
        801 => ["CUDA_ERROR_NOT_SUPPORTED\0", "operation not supported\0"],
        CAPTURE_UNSUPPORTED => [
            "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\0",
            "operation not permitted when stream is capturing\0",
        ],
        CAPTURE_INVALIDATED => [
            "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED\0",
            "operation failed due to a previous error during capture\0",
        ],
        CAPTURE_WRONG_THREAD => [
            "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD\0",
            "attempt to terminate a thread-local capture sequence from another thread\0",
        ],
        _ => return None,
    };
    Some(words)
}

/// True if a context is of no use after this error of a kernel.
fn is_sticky(code: Code) -> bool {
    matches!(code, 214 | 700 | 702 | 710 | 714..=719)
}
