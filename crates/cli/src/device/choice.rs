//! The configured choice of device.

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

    /// The choice of this name.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("expected one of {names}, found {name:?}")
        })
    }
}
