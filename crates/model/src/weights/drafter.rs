//! The files of a drafter, which are read behind those of its target.

use super::{Quantization, Weights};
use crate::LoadError;
use crate::config::Keys;
use crate::files::Files;
use kernels::WeightDtype;

/// The configuration and the weights of a drafter.
pub(crate) struct DrafterFiles {
    pub(crate) config: Keys,
    pub(crate) weights: Weights,
}

impl DrafterFiles {
    /// Opens a folder, whose configuration has this name.
    pub(crate) fn open(files: &Files, config: &str) -> Result<Self, LoadError> {
        let name = format!("{}/{config}", files.place());
        let config = Keys::parse(&name, &files.open(config)?)?;
        let weights = Weights::open(files, Quantization::read(&config, files)?)?;
        Ok(Self { config, weights })
    }

    /// Begins to be read behind `target`, in its dtype; what a target in blocks stores in bf16.
    pub(crate) fn begin(&mut self, target: &mut Weights) {
        self.weights.dtype = match target.dtype {
            WeightDtype::Blocks => WeightDtype::Bf16,
            dtype => dtype,
        };
        self.weights.watch = target.watch.take();
        self.weights.restart(target.reads);
    }

    /// Ends to be read behind `target`, whose memory counts both from now on.
    pub(crate) fn end(&mut self, target: &mut Weights) {
        target.watch = self.weights.watch.take();
        target.memory.follow(self.weights.memory);
    }
}
