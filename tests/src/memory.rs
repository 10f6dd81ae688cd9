//! The resident memory of a process, as Linux states it.

use std::path::{Path, PathBuf};

/// A process's folder in `/proc`. On other systems nothing is measured.
#[derive(Clone, Debug)]
pub struct Memory(PathBuf);

impl Memory {
    /// Memory of the process with this folder in `/proc`.
    pub fn of(proc: &Path) -> Self {
        Self(proc.to_owned())
    }

    /// Memory of this process.
    pub fn own() -> Self {
        Self(PathBuf::from("/proc/self"))
    }

    /// Resident memory now, in KiB; 0 if the system does not say.
    pub fn resident(&self) -> u64 {
        self.line("VmRSS:")
    }

    /// The most resident memory since the start or the last [`Self::begin_peak`], in KiB.
    pub fn peak(&self) -> u64 {
        self.line("VmHWM:")
    }

    /// Begins a new peak.
    pub fn begin_peak(&self) {
        // A system without this file measures no peak.
        let _ = std::fs::write(self.0.join("clear_refs"), "5");
    }

    fn line(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(self.0.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        value.unwrap_or(0)
    }
}
