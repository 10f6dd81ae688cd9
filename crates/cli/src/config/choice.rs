//! The configured choices of device and backend.

use std::fmt;

use super::values::Worded;
use crate::names::unknown;

/// The configured choice of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A CUDA device if the build supports it, the machine has one and the model has kernels on it.
    Auto,
    /// This machine's processor.
    Cpu,
    /// The CUDA device of this number, from 0; refused without one.
    Cuda(u32),
}

impl DeviceChoice {
    /// The number of its CUDA device; `auto` takes the first one.
    pub fn ordinal(self) -> u32 {
        match self {
            Self::Auto | Self::Cpu => 0,
            Self::Cuda(ordinal) => ordinal,
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl Worded for DeviceChoice {
    fn read(name: &str) -> Result<Self, String> {
        let ordinal = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        match (name, ordinal) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(ordinal)) => Ok(Self::Cuda(ordinal)),
            (_, None) => Err(unknown(&["auto", "cpu", "cuda", "cuda:N"], name)),
        }
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
