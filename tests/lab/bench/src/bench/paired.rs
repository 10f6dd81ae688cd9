//! Significance of a difference in accuracy when two decoders answer the same problems.

use serde::{Deserialize, Serialize};

use super::report::round;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_964;

/// A row beside the first row of its comparison, on whole texts (`strict`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Problems that only this row solves.
    pub won: u64,
    /// Problems that only the first row solves.
    pub lost: u64,
    /// The 95 % interval of the difference of the accuracies, this row's minus the first row's, in
    /// percentage points (Tango 1998, score interval).
    pub interval: [f64; 2],
    /// Probability of a split of the discordant problems at least as uneven if both rows were equally
    /// accurate (McNemar's exact test, two-sided).
    pub p: f64,
}

impl Paired {
    /// `None` without problems.
    pub fn new(won: u64, lost: u64, problems: u64) -> Option<Self> {
        if problems == 0 {
            return None;
        }
        let points = |limit: f64| round(100.0 * limit, 1);
        let upper = upper_limit(won as f64, lost as f64, problems as f64);
        let lower = -upper_limit(lost as f64, won as f64, problems as f64);
        Some(Self {
            won,
            lost,
            interval: [points(lower), points(upper)],
            p: round(exact_test(won, lost), 4),
        })
    }
}

/// Twice the tail of the binomial distribution with p = 1/2, at most 1.
fn exact_test(won: u64, lost: u64) -> f64 {
    let (count, least) = (won + lost, won.min(lost));
    // Logarithms: the smallest terms are below the smallest number.
    let mut term = -(count as f64) * std::f64::consts::LN_2;
    let mut tail = term.exp();
    for k in 0..least {
        term += ((count - k) as f64 / (k + 1) as f64).ln();
        tail += term.exp();
    }
    (2.0 * tail).min(1.0)
}

/// The largest difference of two paired proportions that the counts do not refute: where the score
/// statistic of the difference reaches [`Z`].
fn upper_limit(won: f64, lost: f64, problems: f64) -> f64 {
    let observed = (won - lost) / problems;
    let (mut low, mut high) = (observed, 1.0);
    // The statistic falls as the difference grows. 60 halvings leave no more than rounding.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        match score(middle, won, lost, problems) > -Z {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// The score statistic of a difference; the nuisance parameter is the share of problems that only the
/// first row solves, at its most likely value for that difference.
fn score(difference: f64, won: f64, lost: f64, problems: f64) -> f64 {
    let b = (2.0 * problems + lost - won) * difference - won - lost;
    let c = -lost * difference * (1.0 - difference);
    let root = (b * b - 8.0 * problems * c).max(0.0).sqrt();
    let share = (root - b) / (4.0 * problems);
    let variance = problems * (2.0 * share + difference * (1.0 - difference));
    (won - lost - problems * difference) / variance.max(f64::MIN_POSITIVE).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_discordant_problems_the_interval_depends_on_their_number_only() {
        // z^2 / (n + z^2), the closed form.
        for problems in [10, 50, 300] {
            let found = Paired::new(0, 0, problems).expect("there are problems");
            let limit = round(100.0 * Z * Z / (problems as f64 + Z * Z), 1);
            assert_eq!(found.interval, [-limit, limit]);
            assert_eq!(found.p, 1.0);
        }
        assert_eq!(Paired::new(0, 0, 0), None);
    }

    #[test]
    fn the_exact_test_sums_both_tails() {
        // 2 (1 + 10 + 45) / 1024.
        assert!((exact_test(8, 2) - 112.0 / 1024.0).abs() < 1e-12);
        assert_eq!(exact_test(2, 8), exact_test(8, 2));
        assert_eq!(exact_test(5, 5), 1.0);
        assert!(exact_test(3_000, 0) == 0.0 && exact_test(1_500, 1_500) == 1.0);
    }

    #[test]
    fn intervals_contain_the_difference_and_mirror() {
        for (won, lost, problems) in [(3, 12, 100), (20, 1, 60), (0, 7, 30), (60, 0, 60)] {
            let found = Paired::new(won, lost, problems).expect("there are problems");
            let mirrored = Paired::new(lost, won, problems).expect("there are problems");
            let [low, high] = found.interval;
            let difference = 100.0 * (won as f64 - lost as f64) / problems as f64;
            assert!(low <= difference && difference <= high, "{found:?}");
            assert_eq!(mirrored.interval, [-high, -low]);
            assert_eq!(mirrored.p, found.p);
            assert!((-100.0..=100.0).contains(&low) && (-100.0..=100.0).contains(&high));
        }
    }

    #[test]
    fn a_difference_is_significant_where_the_interval_leaves_out_zero() {
        let found = Paired::new(2, 20, 300).expect("there are problems");
        assert!(found.interval[1] < 0.0 && found.p < 0.01, "{found:?}");
        let found = Paired::new(9, 12, 300).expect("there are problems");
        assert!(found.interval[0] < 0.0 && found.interval[1] > 0.0 && found.p > 0.5);
    }
}
