//! The memory that a model needs and that is free, before any weight is read.

use std::path::Path;

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

    /// The same with other KV pages.
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
    available(Path::new("/"))
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

/// Available bytes: the system's, limited by the control groups of this process. `None` if the system
/// does not report them.
fn available(root: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let num_kv_heads = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let left = num_kv_heads.lines().filter_map(|line| group(root, line)).min();
    Some((kib << 10).min(left.unwrap_or(u64::MAX)))
}

/// Bytes left in the group of a line of `/proc/self/cgroup` and in the groups around it.
fn group(root: &Path, line: &str) -> Option<u64> {
    let (_, line) = line.split_once(':')?;
    let (controllers, path) = line.split_once(':')?;
    let mounted = root.join("sys/fs/cgroup");
    // In a container the path may be the host's; then the group's files are at the mount point.
    let (mounted, names) = match controllers {
        "" => (mounted, ["memory.max", "memory.current", "inactive_file "]),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
            (mounted.join("memory"), names)
        }
        _ => return None,
    };
    let inner = mounted.join(path.trim_start_matches('/'));
    let around = inner.ancestors().take_while(|folder| folder.starts_with(&mounted));
    around.filter_map(|folder| left_of(folder, names)).min()
}

/// Bytes left in one control group; inactive file pages count as free.
fn left_of(folder: &Path, [limit, used, idle]: [&str; 3]) -> Option<u64> {
    let number = |name| -> Option<u64> {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let limit = number(limit)?;
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let idle = stat.lines().find_map(|line| line.strip_prefix(idle)?.parse().ok());
    let used = number(used)?.saturating_sub(idle.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests;
