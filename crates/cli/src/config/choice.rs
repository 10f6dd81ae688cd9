//! The configured choices of device and backend.

use super::values::Worded;
use crate::names::unknown;

/// The configured choice of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A CUDA device if the build supports it, the machine has one and the model has kernels on it.
    Auto,
    /// This machine's processor.
    Cpu,
    /// The first CUDA device; refused without one.
    Cuda,
}

impl DeviceChoice {
    const ALL: [Self; 3] = [Self::Auto, Self::Cpu, Self::Cuda];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl Worded for DeviceChoice {
    fn read(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == name);
        found.ok_or_else(|| unknown(&Self::ALL.map(Self::name), name))
    }
}

/// The configured choice of what computes on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// This server's kernels.
    Cpu,
    /// Plain tensor code of candle, the reference for the other backends.
    Candle,
}

impl BackendChoice {
    const ALL: [Self; 2] = [Self::Cpu, Self::Candle];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Candle => "candle",
        }
    }
}

impl Worded for BackendChoice {
    fn read(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == name);
        found.ok_or_else(|| unknown(&Self::ALL.map(Self::name), name))
    }
}
