//! Arrival of requests: a fixed number in flight, or a Poisson process.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp};

/// The pattern in which requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPattern {
    /// Closed loop: this many requests in flight, `>= 1`; the next is sent when one finishes.
    Closed(usize),
    /// Open loop: this many requests per second on average, `> 0`, whatever is in flight.
    Open(f64),
}

impl LoadPattern {
    /// Label in a row's name.
    pub fn label(self) -> String {
        match self {
            Self::Closed(count) => format!("c={count}"),
            Self::Open(rate) => format!("rate={rate}"),
        }
    }

    /// The arrivals of `count` requests; the same `seed` draws the same times.
    pub fn arrivals(self, count: usize, seed: u64) -> Arrivals {
        let times = match self {
            Self::Closed(_) => Vec::new(),
            Self::Open(rate) => poisson(rate, count, seed),
        };
        Arrivals { load: self, times, next: 0, count }
    }
}

/// Times of `count` arrivals, ascending; the first one is at 0.
fn poisson(rate: f64, count: usize, seed: u64) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let gaps = Exp::new(rate).expect("rates are checked to be positive");
    let mut time = 0.0;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(Duration::from_secs_f64(time));
        time += gaps.sample(&mut random);
    }
    times
}

/// Requests that have not arrived yet, in order.
#[derive(Clone, Debug)]
pub struct Arrivals {
    load: LoadPattern,
    times: Vec<Duration>,
    next: usize,
    count: usize,
}

impl Arrivals {
    /// The next request that has arrived at `now` with `in_flight` others unanswered: its index and the
    /// start of its latency.
    pub fn due(&mut self, now: Duration, in_flight: usize) -> Option<(usize, Duration)> {
        if self.next == self.count {
            return None;
        }
        let time = match self.load {
            LoadPattern::Closed(most) => (in_flight < most).then_some(now)?,
            LoadPattern::Open(_) => Some(self.times[self.next]).filter(|time| *time <= now)?,
        };
        self.next += 1;
        Some((self.next - 1, time))
    }

    /// The time of the next arrival; `None` in a closed loop and at the end.
    pub fn next_at(&self) -> Option<Duration> {
        self.times.get(self.next).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_closed_loop_keeps_its_number_in_flight() {
        let mut arrivals = LoadPattern::Closed(2).arrivals(3, 1);
        assert_eq!(arrivals.due(ms(5), 0), Some((0, ms(5))));
        assert_eq!(arrivals.due(ms(6), 1), Some((1, ms(6))));
        assert_eq!(arrivals.due(ms(7), 2), None);
        assert_eq!(arrivals.due(ms(8), 1), Some((2, ms(8))));
        assert_eq!(arrivals.due(ms(9), 0), None);
        assert_eq!(arrivals.next_at(), None);
    }

    #[test]
    fn an_open_loop_sends_at_its_own_times() {
        let mut arrivals = LoadPattern::Open(100.0).arrivals(4, 1);
        assert_eq!(arrivals.due(ms(0), 9), Some((0, ms(0))));
        let next = arrivals.next_at().unwrap();
        assert_eq!(arrivals.due(next.saturating_sub(ms(1)), 0), None);
        let late = next + ms(60_000);
        assert_eq!(arrivals.due(late, 0), Some((1, next)));
        assert!(arrivals.due(late, 0).is_some() && arrivals.due(late, 0).is_some());
        assert_eq!(arrivals.due(late, 0), None);
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_repeats_by_its_seed() {
        let times = poisson(50.0, 10_001, 7);
        assert_eq!(times, poisson(50.0, 10_001, 7));
        assert_ne!(times, poisson(50.0, 10_001, 8));
        let mean = times[10_000].as_secs_f64() / 10_000.0;
        assert!((mean - 0.02).abs() < 0.001, "{mean}");
        let long = times.windows(2).filter(|pair| pair[1] - pair[0] > ms(20));
        let share = long.count() as f64 / 10_000.0;
        assert!((share - (-1.0_f64).exp()).abs() < 0.02, "{share}");
    }
}
