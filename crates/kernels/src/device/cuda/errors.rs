//! Errors of the driver: their words, and those after which the context is of no use.

use super::super::DeviceError;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;
use std::sync::OnceLock;

/// The first error of the context after which every call fails. A process has one primary context per
/// device and uses one device.
static LOST: OnceLock<String> = OnceLock::new();

/// The first error that made the context useless.
pub(super) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// The error of a failed call that was made for `what`.
pub(super) fn failed(what: &str) -> impl FnOnce(DriverError) -> DeviceError + '_ {
    move |error| {
        let told = DeviceError(format!("CUDA: {what}: {}", words(error)));
        if is_fatal(error.0) {
            LOST.get_or_init(|| told.0.clone());
        }
        told
    }
}

/// Description, name and number of an error.
pub(super) fn words(error: DriverError) -> String {
    let text = |words: Result<&std::ffi::CStr, DriverError>| {
        words.map_or_else(
            |_| "unknown error".to_owned(),
            |words| words.to_string_lossy().into_owned(),
        )
    };
    let (string, name) = (text(error.error_string()), text(error.error_name()));
    format!("{string} ({name}, {})", error.0 as u32)
}

/// True if no call in this process can succeed after the error: faults of kernels, failed memory,
/// a device that is gone.
fn is_fatal(code: CUresult) -> bool {
    use CUresult as E;
    matches!(
        code,
        E::CUDA_ERROR_DEINITIALIZED
            | E::CUDA_ERROR_DEVICE_UNAVAILABLE
            | E::CUDA_ERROR_ECC_UNCORRECTABLE
            | E::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | E::CUDA_ERROR_CONTAINED
            | E::CUDA_ERROR_ILLEGAL_ADDRESS
            | E::CUDA_ERROR_LAUNCH_TIMEOUT
            | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | E::CUDA_ERROR_ASSERT
            | E::CUDA_ERROR_HARDWARE_STACK_ERROR
            | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | E::CUDA_ERROR_MISALIGNED_ADDRESS
            | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | E::CUDA_ERROR_INVALID_PC
            | E::CUDA_ERROR_LAUNCH_FAILED
            | E::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | E::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | E::CUDA_ERROR_UNKNOWN
    )
}
