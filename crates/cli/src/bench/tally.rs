//! What one row cost in one round.

use std::time::Duration;

use demo::grade::Grade;
use engine::SequenceStats;

use super::latency::Times;

/// What one row did in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Problems run.
    pub problems: u64,
    /// Right by the end of the answer.
    pub end: u64,
    /// Right in the whole text.
    pub strict: u64,
    /// Identical to the answer of the comparison's first row.
    pub agreed: u64,
    /// Output tokens up to the first stop token.
    pub tokens: u64,
    /// Forward passes, summed over sequences.
    pub forwards: u64,
    /// Rows computed.
    pub positions: u64,
    /// Wall time.
    pub wall: Duration,
    /// Wall time inside the executor; `None` where the target does not show it.
    pub execute: Option<Duration>,
    /// One per request.
    pub times: Vec<Times>,
    /// Resident memory of the process at the end of the round, in bytes; 0 where it is unknown.
    pub resident: u64,
    /// What the idle streams on the side cost of it.
    pub crowd: u64,
}

impl Tally {
    /// Output tokens per second.
    pub fn tps(&self) -> f64 {
        self.tokens as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Adds what a finished sequence cost.
    pub fn count(&mut self, stats: &SequenceStats) {
        self.tokens += u64::from(stats.emitted_tokens);
        self.forwards += u64::from(stats.forwards());
        self.positions += stats.positions;
    }

    /// Adds an answer's grade.
    pub fn grade(&mut self, grade: Grade) {
        self.end += u64::from(grade.end);
        self.strict += u64::from(grade.strict);
    }
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.map_or(0, |kib| kib << 10)
}
