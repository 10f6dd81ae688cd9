//! The memory that a model needs and that is free, before any weight is read.

#[cfg(any(target_os = "linux", test))]
mod linux;

use anyhow::Result;
use model::{Checkpoint, ModelInfo, WeightDtype};

pub use model::Memory;

/// The memory that a model needs in one dtype.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Memory of the weights.
    pub memory: Memory,
    /// Bytes of all KV pages.
    pub kv: u64,
}

impl Need {
    /// Peak bytes; KV pages are allocated after the weights are loaded.
    pub fn most(&self) -> u64 {
        self.memory.loading.max(self.memory.weights.saturating_add(self.kv))
    }
}

/// The memory that a model needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The dtype that the weights are read as.
    pub dtype: WeightDtype,
    /// The memory that it needs in that dtype.
    pub own: Need,
    /// The memory that it needs by dtype, in the order of [`WeightDtype::ALL`]; `None` where the dtype does not
    /// suit the model.
    pub others: [Option<Need>; WeightDtype::ALL.len()],
}

impl Needs {
    /// The needs of `checkpoint` with KV pages of as many bytes as `kv` says.
    ///
    /// # Errors
    /// A checkpoint that cannot be loaded; an error of `kv`.
    pub fn survey(
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
        kv: impl Fn(&ModelInfo) -> Result<u64>,
    ) -> Result<Self> {
        let mut need = |dtype| -> Result<_> {
            let survey = checkpoint.survey(dtype).map_err(crate::exit::refused)?;
            let need = Need { memory: survey.memory, kv: kv(&survey.info)? };
            Ok((survey.info.formats.matrices, need))
        };
        let (dtype, own) = need(dtype)?;
        let others = WeightDtype::ALL.map(|dtype| Some(need(dtype).ok()?.1));
        Ok(Self { dtype, own, others })
    }

    /// Peak bytes in the dtype that the weights are read as.
    pub fn bytes(&self) -> u64 {
        self.own.most()
    }

    /// The dtypes that suit the model, from the most exact one, with what they need.
    pub fn by_dtype(&self) -> impl Iterator<Item = (WeightDtype, Need)> {
        let all = WeightDtype::ALL.into_iter().zip(self.others);
        all.filter_map(|(dtype, need)| Some((dtype, need?)))
    }

    /// The reason why the model does not fit into `free` bytes, and a choice that fits.
    pub fn refusal(&self, free: u64) -> Option<String> {
        let (memory, needed) = (self.own.memory, self.bytes());
        if needed <= free {
            return None;
        }
        let parts = if memory.loading == needed {
            format!("to load it in {}", self.dtype.name())
        } else {
            let (weights, kv) = (size(memory.weights), size(self.own.kv));
            format!("{weights} of weights in {}, {kv} of KV pages", self.dtype.name())
        };
        let instead = self.by_dtype().find(|(_, need)| need.most() <= free);
        let left = free.saturating_sub(memory.weights) >> 20;
        let advice = match instead {
            Some((dtype, need)) => {
                format!("try --dtype {}, which needs {}", dtype.name(), size(need.most()))
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
