//! The laboratory of the CUDA kernels: drivers that run the kernels on the host, observe what they do with
//! memory, compute what their launches move, or take the times of a device; and the long comparison of
//! every kernel with the processor's.

extern crate asynclane_kernels as kernels;
extern crate asynclane_model as model;

mod cost;
mod emulation;
mod layout;
mod observe;
mod planning;
mod selftest;
mod times;
mod timing;

pub use cost::{LaunchCost, Moved, SECTOR};
#[cfg(test)]
pub(crate) use emulation::emulated_warps;
pub use emulation::{Emulation, TensorSums, emulated, emulated_as, emulated_small, emulated_with};
#[cfg(test)]
pub(crate) use observe::observed_warps;
pub use observe::{Accesses, Observation, Observations, Traffic, observed};
pub use planning::{Launches, planned, planning};
pub use selftest::{SelftestSizes, selftest};
pub use times::{Card, GAP, floor, step_seconds};
pub use timing::{KernelTimes, timed};

use kernels::device::DeviceError;

type Result<T> = std::result::Result<T, DeviceError>;

/// An error with this text.
fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(DeviceError(text.into()))
}
