//! The requests of a day: a curve over the hours with one burst, Poisson arrivals around it.

use std::time::Duration;

use anyhow::Result;
use decode::TokenId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp};

use super::replica::VOCAB;
use crate::args::DayArgs;
use cli::exit;

/// Requests per second at every full hour, as a share of the peak: a night, a morning that rises, two
/// peaks around noon, an evening. Between two hours the rate is a straight line.
const HOURS: [f64; 25] = [
    0.15, 0.10, 0.06, 0.05, 0.05, 0.08, 0.15, 0.30, 0.60, 0.85, 1.00, 0.95, 0.75, 0.80, 0.95, 0.90,
    0.80, 0.65, 0.50, 0.45, 0.50, 0.45, 0.35, 0.25, 0.15,
];
/// A burst: when it begins, when it ends, and its factor.
const BURST: (f64, f64, f64) = (15.0, 15.0 + 10.0 / 60.0, 2.0);

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// One request.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When it comes.
    pub at: Duration,
    /// Its prompt.
    pub prompt: Vec<TokenId>,
    /// Tokens of its answer.
    pub answer: u32,
}

/// The requests that have not come yet.
#[derive(Clone, Debug)]
pub struct Trace {
    random: StdRng,
    at: f64,
    peak: f64,
    end: f64,
    prompt: u32,
    answer: u32,
}

impl Trace {
    /// The trace of `args`, from its first request.
    ///
    /// # Errors
    /// A rate that is not positive.
    pub fn new(args: &DayArgs) -> Result<Self> {
        if [args.peak, args.step_fill]
            .iter()
            .any(|of| !of.is_finite() || *of <= 0.0)
        {
            let message = "--peak, --step-fill: expected positive numbers";
            return Err(exit::failure(exit::USAGE, message));
        }
        Ok(Self {
            random: StdRng::seed_from_u64(args.seed),
            at: 0.0,
            peak: args.peak,
            end: HOUR * f64::from(args.hours),
            prompt: args.prompt_tokens,
            answer: args.answer_tokens,
        })
    }

    /// How many requests come.
    pub fn count(&self) -> usize {
        self.clone().count_all()
    }

    fn count_all(mut self) -> usize {
        std::iter::from_fn(|| self.next_arrival()).count()
    }

    /// The next request, drawn by thinning the largest rate.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        let most = self.peak * BURST.2;
        let gaps = Exp::new(most).expect("the rate is checked");
        loop {
            self.at += gaps.sample(&mut self.random);
            if self.at >= self.end {
                return None;
            }
            let chance = self.peak * share(self.at / HOUR) / most;
            if self.random.random::<f64>() < chance {
                let length = self
                    .random
                    .random_range(self.prompt / 2..=self.prompt * 3 / 2);
                let tokens = (0..length).map(|_| self.random.random_range(3..VOCAB));
                return Some(Arrival {
                    prompt: tokens.collect(),
                    at: Duration::from_secs_f64(self.at),
                    answer: self.answer,
                });
            }
        }
    }
}

/// The rate at an hour in `0..24`, as a share of the peak.
fn share(hour: f64) -> f64 {
    let before = (hour.floor() as usize).min(HOURS.len() - 2);
    let part = hour - before as f64;
    let rate = HOURS[before] * (1.0 - part) + HOURS[before + 1] * part;
    let burst = (BURST.0..BURST.1).contains(&hour);
    if burst { rate * BURST.2 } else { rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_through_its_hours_and_the_burst_doubles_it() {
        assert_eq!(share(10.0), 1.0);
        assert!((share(9.5) - 0.925).abs() < 1e-12);
        assert!((share(15.1) - 2.0 * 0.89).abs() < 1e-12);
        assert!(share(15.2) < 1.0);
        assert!((share(23.999) - 0.15).abs() < 1e-3);
    }
}
