//! Counts of one row in one round.

use std::time::Duration;

use engine::{DraftStats, SequenceStats};
use problems::Grade;

use super::latency::Times;

/// Counts of one row in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Problems run.
    pub problems: u64,
    /// Answers with the right end.
    pub end: u64,
    /// Answers that are right in the whole text.
    pub strict: u64,
    /// Answers identical to those of the comparison's first row.
    pub agreed: u64,
    /// Answers that are right in the whole text where the first row's is not.
    pub won: u64,
    /// The reverse.
    pub lost: u64,
    /// Output tokens up to the first stop token.
    pub tokens: u64,
    /// Forward passes, summed over sequences.
    pub forwards: u64,
    /// Rows computed.
    pub positions: u64,
    /// Forward passes that checked the model's own guesses.
    pub checks: u64,
    /// Tokens that they committed.
    pub checked_tokens: u64,
    /// The draft model's part, which is not among the counts above.
    pub draft_model: DraftStats,
    /// Wall time.
    pub wall: Duration,
    /// Wall time inside the executor; `None` if the target does not report it.
    pub execute: Option<Duration>,
    /// The part of it in which passes are launched; zero for executors that compute while they are
    /// waited for.
    pub begin: Duration,
    /// Times of each request.
    pub times: Vec<Times>,
    /// Resident memory of the process at the end of the round, in bytes; 0 where it is unknown.
    pub resident: u64,
}

impl Tally {
    /// Output tokens per second.
    pub fn tps(&self) -> f64 {
        self.tokens as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Adds the cost of a finished sequence.
    pub fn count(&mut self, stats: &SequenceStats) {
        self.tokens += u64::from(stats.emitted_tokens);
        self.forwards += u64::from(stats.forwards());
        self.positions += stats.positions;
        self.checks += u64::from(stats.checks.forwards);
        self.checked_tokens += u64::from(stats.checks.tokens);
        let (sum, more) = (&mut self.draft_model, stats.draft_model);
        sum.forwards += more.forwards;
        sum.positions += more.positions;
        sum.drafted += more.drafted;
        sum.verified += more.verified;
    }

    /// Adds the grades of answers, beside those of the first row to the same problems.
    pub fn grade(&mut self, grades: &[Grade], first: &[Grade]) {
        for (grade, first) in grades.iter().zip(first) {
            self.end += u64::from(grade.end);
            self.strict += u64::from(grade.strict);
            self.won += u64::from(grade.strict && !first.strict);
            self.lost += u64::from(!grade.strict && first.strict);
        }
    }
}

/// Resident memory of this process in bytes; 0 if the system does not report it.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}
