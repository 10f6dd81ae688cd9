//! Tokens per second over the last ten seconds, from a ring of one-second buckets.

use std::time::Duration;

const SECONDS: usize = 10;

/// The ring. Times are durations since a fixed moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    buckets: [Bucket; SECONDS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    second: u64,
    generated: u64,
    committed: u64,
}

impl Rates {
    /// Counts tokens at `now`.
    pub fn record(&mut self, now: Duration, generated: u64, committed: u64) {
        let second = now.as_secs();
        let bucket = &mut self.buckets[(second % SECONDS as u64) as usize];
        if bucket.second != second {
            *bucket = Bucket { second, ..Bucket::default() };
        }
        bucket.generated += generated;
        bucket.committed += committed;
    }

    /// Generated and committed tokens per second, over the ten seconds up to `now`.
    pub fn per_second(&self, now: Duration) -> (f64, f64) {
        let oldest = (now.as_secs() + 1).saturating_sub(SECONDS as u64);
        let recent = self.buckets.iter().filter(|bucket| bucket.second >= oldest);
        let (generated, committed) =
            recent.fold((0, 0), |sum, bucket| (sum.0 + bucket.generated, sum.1 + bucket.committed));
        (generated as f64 / SECONDS as f64, committed as f64 / SECONDS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_leave_after_ten_seconds() {
        let mut rates = Rates::default();
        let time = Duration::from_millis;
        rates.record(time(500), 10, 20);
        rates.record(time(900), 10, 0);
        rates.record(time(9_100), 30, 40);
        assert_eq!(rates.per_second(time(9_900)), (5.0, 6.0));
        assert_eq!(rates.per_second(time(10_000)), (3.0, 4.0));
        rates.record(time(10_000), 1, 1);
        assert_eq!(rates.per_second(time(10_500)), (3.1, 4.1));
        assert_eq!(rates.per_second(time(60_000)), (0.0, 0.0));
    }
}
