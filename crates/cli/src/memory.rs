//! The memory that a model needs and that is free, before any weight is read.

#[cfg(any(target_os = "linux", test))]
mod linux;

use anyhow::Result;
use model::{Checkpoint, WeightDtype};

pub use model::Memory;

/// The memory that a model needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The dtype that the weights are read as.
    pub dtype: WeightDtype,
    /// Memory of the weights in that dtype.
    pub memory: Memory,
    /// Memory of the weights by dtype, in the order of [`WeightDtype::ALL`]; `None` where the dtype
    /// does not suit the model.
    pub others: [Option<Memory>; WeightDtype::ALL.len()],
    /// Bytes of all KV pages.
    pub kv: u64,
}

impl Needs {
    /// The needs of `checkpoint` with `kv` bytes of KV pages.
    ///
    /// # Errors
    /// A checkpoint that cannot be loaded.
    pub fn survey(checkpoint: &mut Checkpoint, dtype: WeightDtype, kv: u64) -> Result<Self> {
        let survey = checkpoint.survey(dtype).map_err(crate::exit::refused)?;
        let others = WeightDtype::ALL.map(|dtype| Some(checkpoint.survey(dtype).ok()?.memory));
        Ok(Self { dtype: survey.info.formats.matrices, memory: survey.memory, others, kv })
    }

    /// The same with this many bytes of KV pages.
    pub fn with_kv(mut self, kv: u64) -> Self {
        self.kv = kv;
        self
    }

    /// Peak bytes in the dtype that the weights are read as.
    pub fn bytes(&self) -> u64 {
        self.most(self.memory)
    }

    /// The dtypes that suit the model, from the most exact one, with the memory of the weights.
    pub fn by_dtype(&self) -> impl Iterator<Item = (WeightDtype, Memory)> {
        let all = WeightDtype::ALL.into_iter().zip(self.others);
        all.filter_map(|(dtype, memory)| Some((dtype, memory?)))
    }

    /// Peak bytes; KV pages are allocated after the weights are loaded.
    pub fn most(&self, memory: Memory) -> u64 {
        memory.loading.max(memory.weights.saturating_add(self.kv))
    }

    /// The reason why the model does not fit into `free` bytes, and a choice that fits.
    pub fn refusal(&self, free: u64) -> Option<String> {
        let (memory, needed) = (self.memory, self.most(self.memory));
        if needed <= free {
            return None;
        }
        let parts = if memory.loading == needed {
            format!("to load it in {}", self.dtype.name())
        } else {
            let (weights, kv) = (size(memory.weights), size(self.kv));
            format!("{weights} of weights in {}, {kv} of KV pages", self.dtype.name())
        };
        let instead = self.by_dtype().find(|(_, memory)| self.most(*memory) <= free);
        let left = free.saturating_sub(memory.weights) >> 20;
        let advice = match instead {
            Some((dtype, memory)) => {
                format!("try --dtype {}, which needs {}", dtype.name(), size(self.most(memory)))
            }
            None if memory.loading <= free && left > 0 => format!("try --kv-memory {left}MiB"),
            None => "no dtype fits".to_owned(),
        };
        Some(format!("needs {} ({parts}), {} free: {advice}", size(needed), size(free)))
    }
}

/// Bytes that are free for a model. `None` if the system does not report them.
pub fn free() -> Option<u64> {
    #[cfg(target_os = "linux")]
    return linux::available(std::path::Path::new("/"));
    #[cfg(not(target_os = "linux"))]
    {
        let mut system = sysinfo::System::new().ok()?;
        system.refresh_memory();
        Some(system.available_memory()).filter(|bytes| *bytes > 0)
    }
}

/// A number of bytes with a unit.
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match bytes >> 20 {
        1024.. => format!("{:.1} GiB", mib / 1024.0),
        100.. => format!("{mib:.0} MiB"),
        _ => format!("{mib:.1} MiB"),
    }
}

#[cfg(test)]
mod tests;
