//! The kernels' machine code and PTX, and which drivers can load them.

use super::super::DeviceError;
use super::errors::words;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;
use std::ffi::c_void;

/// Bytes at an address that the driver accepts.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

/// Machine code of a compute capability. It runs on devices of the same major number and an equal or
/// higher minor number.
struct MachineCode {
    capability: (i32, i32),
    bytes: &'static Aligned<[u8]>,
}

/// The machine code of a file of the build script. That for compute capability 9.0 has the kernels of
/// warpgroups (`90a`).
macro_rules! machine_code {
    ($major:literal, $minor:literal, $file:literal) => {
        MachineCode {
            capability: ($major, $minor),
            bytes: &Aligned(*include_bytes!(concat!(
                env!("OUT_DIR"),
                "/kernels_",
                $file,
                ".cubin"
            ))),
        }
    };
}

/// In ascending order.
static MACHINE_CODE: [MachineCode; 4] = [
    machine_code!(8, 0, "80"),
    machine_code!(8, 6, "86"),
    machine_code!(8, 9, "89"),
    machine_code!(9, 0, "90a"),
];
/// PTX for later devices, ends with a zero byte.
static PTX: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/kernels.ptx.0")));

/// The release of the assembler: `12.9`.
const ASSEMBLER: &str = env!("ASYNCLANE_CUDA_ASSEMBLER");
/// The lowest compute capability that the kernels support.
pub(super) const OLDEST: (i32, i32) = (8, 0);

/// A release of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    major: i32,
    minor: i32,
}

impl Release {
    /// The first one whose drivers measure the time between events as cudarc asks for it.
    pub(super) const TIMED: Self = Self::new(12, 8);

    const fn new(major: i32, minor: i32) -> Self {
        Self { major, minor }
    }

    /// The release in an answer of `cuDriverGetVersion`: 12080 is 12.8.
    pub(super) fn of_driver(version: i32) -> Self {
        Self::new(version / 1000, version % 1000 / 10)
    }

    /// The first driver for Linux of this release, if known.
    fn driver(self) -> Option<u32> {
        match (self.major, self.minor) {
            (12, 0) => Some(525),
            (12, 8) => Some(570),
            (12, 9) => Some(575),
            (13, 0) => Some(580),
            _ => None,
        }
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// An image that a device loads, and the first release of CUDA whose drivers can load it.
#[derive(Clone, Copy)]
pub(super) struct Image {
    bytes: &'static Aligned<[u8]>,
    needed: Release,
    warpgroups: bool,
}

impl Image {
    /// The image for a compute capability.
    pub(super) fn of(capability: (i32, i32)) -> Self {
        let (major, minor) = capability;
        let fits = |capability: (i32, i32)| capability.0 == major && capability.1 <= minor;
        let mut newest_first = MACHINE_CODE.iter().rev();
        let best = newest_first.find(|code| fits(code.capability));
        // Drivers load machine code of every release of their major number, but only PTX of their
        // own release and earlier ones.
        match best {
            Some(code) => Self {
                bytes: code.bytes,
                needed: Release::new(assembler().major, 0),
                warpgroups: code.capability == (9, 0),
            },
            None => Self { bytes: PTX, needed: ptx_release(&PTX.0), warpgroups: false },
        }
    }

    /// True if it has the kernels of warpgroups.
    pub(super) fn has_warpgroups(self) -> bool {
        self.warpgroups
    }

    /// The address that the driver reads.
    pub(super) fn address(self) -> *const c_void {
        self.bytes.0.as_ptr().cast()
    }

    /// Why a driver of a release cannot load it, known before it tries.
    pub(super) fn refusal(self, found: Release) -> Option<DeviceError> {
        (found < self.needed).then(|| DeviceError(self.requirement(found)))
    }

    /// The error of a driver that did not load it.
    pub(super) fn failed(self, found: Release) -> impl FnOnce(DriverError) -> DeviceError {
        move |error| {
            let unfit = matches!(
                error.0,
                CUresult::CUDA_ERROR_INVALID_IMAGE
                    | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                    | CUresult::CUDA_ERROR_INVALID_PTX
                    | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                    | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            );
            match unfit {
                true => DeviceError(format!(
                    "CUDA: kernels: {}: {}",
                    words(error),
                    self.requirement(found)
                )),
                false => super::failed("kernels")(error),
            }
        }
    }

    fn requirement(self, found: Release) -> String {
        let needed = self.needed;
        let driver = needed
            .driver()
            .map_or_else(String::new, |first| format!(" (version {first} or later)"));
        format!(
            "expected an NVIDIA driver for CUDA {needed} or later{driver}, found one for CUDA {found}"
        )
    }
}

fn assembler() -> Release {
    let parsed = ASSEMBLER
        .split_once('.')
        .and_then(|(major, minor)| Some(Release::new(major.parse().ok()?, minor.parse().ok()?)));
    parsed.unwrap_or(Release::new(13, 0))
}

/// The first release of CUDA that knows the version of this PTX.
fn ptx_release(ptx: &[u8]) -> Release {
    let text = String::from_utf8_lossy(&ptx[..ptx.len().min(1024)]);
    let version = text.lines().find_map(|line| line.strip_prefix(".version "));
    match version.map(str::trim) {
        Some("8.7") => Release::new(12, 8),
        // A later toolkit lowers nothing.
        _ => assembler(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_get_code_of_their_generation_and_later_ones_ptx() {
        let start = |capability| Image::of(capability).bytes.0[..4].to_vec();
        for capability in [(8, 0), (8, 6), (8, 9), (9, 0)] {
            assert_eq!(start(capability), b"\x7FELF", "{capability:?}");
        }
        let address = |index: usize| MACHINE_CODE[index].bytes.0.as_ptr().cast::<c_void>();
        for capability in [(8, 6), (8, 7)] {
            assert_eq!(Image::of(capability).address(), address(1));
        }
        assert_eq!(Image::of((8, 9)).address(), address(2));
        for capability in [(10, 0), (12, 0)] {
            assert!(start(capability).starts_with(b"//"), "{capability:?}");
        }
        assert_eq!(PTX.0.last(), Some(&0));
    }

    #[test]
    fn a_driver_that_is_too_old_is_named() {
        let (code, ptx) = (Image::of((9, 0)), Image::of((12, 0)));
        assert_eq!(code.refusal(Release::of_driver(12_000)), None);
        let line = code.refusal(Release::of_driver(11_080)).unwrap().0;
        let want = "expected an NVIDIA driver for CUDA 12.0 or later (version 525 or later), found \
                    one for CUDA 11.8";
        assert_eq!(line, want);
        assert_eq!(ptx.refusal(Release::of_driver(12_080)), None);
        let line = ptx.refusal(Release::of_driver(12_040)).unwrap().0;
        assert!(line.contains("CUDA 12.8 or later (version 570"), "{line}");
    }
}
