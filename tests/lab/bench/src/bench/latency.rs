//! Latencies of requests: to the first token, between tokens, to the end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::report::round;

/// The times of one request, from its arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// To the first token; to the end if there was none.
    pub first: Duration,
    /// To the end.
    pub end: Duration,
    /// Output tokens.
    pub tokens: u64,
}

/// The 50th, 95th and 99th percentile, in milliseconds.
pub type Percentiles = [f64; 3];

/// The latencies of all requests of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Time to the first token.
    pub ttft_ms: Percentiles,
    /// Time per output token after the first: (E2E - TTFT) / (tokens - 1). Requests with one token
    /// have none.
    pub tpot_ms: Percentiles,
    /// Time to the end.
    pub e2e_ms: Percentiles,
}

impl Latency {
    /// `None` without requests.
    pub fn of(times: &[Times]) -> Option<Self> {
        if times.is_empty() {
            return None;
        }
        let per_token = |time: &Times| {
            let others = time.tokens.checked_sub(1).filter(|others| *others > 0)?;
            Some(milliseconds(time.end.saturating_sub(time.first)) / others as f64)
        };
        Some(Self {
            ttft_ms: percentiles(times.iter().map(|time| milliseconds(time.first))),
            tpot_ms: percentiles(times.iter().filter_map(per_token)),
            e2e_ms: percentiles(times.iter().map(|time| milliseconds(time.end))),
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Percentiles by nearest rank; zeros without values.
fn percentiles(values: impl Iterator<Item = f64>) -> Percentiles {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [50, 95, 99].map(|percent| {
        let rank = (values.len() * percent).div_ceil(100).max(1);
        values.get(rank - 1).map_or(0.0, |value| round(*value, 3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let first = |count: u32| percentiles((1..=count).rev().map(f64::from));
        assert_eq!(first(100), [50.0, 95.0, 99.0]);
        assert_eq!(first(10), [5.0, 10.0, 10.0]);
        assert_eq!(first(1), [1.0; 3]);
        assert_eq!(first(0), [0.0; 3]);
    }

    #[test]
    fn a_single_token_has_no_time_between_tokens() {
        let ms = Duration::from_millis;
        let time = |first, end, tokens| Times { first: ms(first), end: ms(end), tokens };
        let latency = Latency::of(&[time(10, 10, 1), time(20, 60, 5)]).unwrap();
        assert_eq!(latency.ttft_ms, [10.0, 20.0, 20.0]);
        assert_eq!(latency.tpot_ms, [10.0; 3]);
        assert_eq!(latency.e2e_ms, [10.0, 60.0, 60.0]);
        assert_eq!(Latency::of(&[]), None);
    }
}
