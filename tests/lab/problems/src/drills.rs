//! Arithmetic drills: training data outside the families, never evaluated.

use serde::Serialize;

use crate::rng::{self, Rng};

/// A prompt that asks for the results of a few equations, and its one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drill {
    /// For example `Compute 12 + 5, 9 - 4.`
    pub prompt: String,
    /// For example `12 + 5 = 17. 9 - 4 = 5.`
    pub answer: String,
}

/// `count` drills of two to four equations with numbers in the range of the sums.
pub fn drills(seed: u64, count: usize) -> Vec<Drill> {
    let mut rng = Rng::new(seed ^ rng::hash("drills"));
    (0..count)
        .map(|_| {
            let equations: Vec<(String, u32)> =
                (0..rng.between(2, 4)).map(|_| equation(&mut rng)).collect();
            let asked: Vec<&str> = equations.iter().map(|(left, _)| left.as_str()).collect();
            let solved: Vec<String> =
                equations.iter().map(|(left, right)| format!("{left} = {right}.")).collect();
            Drill { prompt: format!("Compute {}.", asked.join(", ")), answer: solved.join(" ") }
        })
        .collect()
}

/// A left-hand side and its value, all numbers within 1..=60.
fn equation(rng: &mut Rng) -> (String, u32) {
    match rng.weighted(&[4, 4, 2, 1]) {
        0 => {
            let (left, right) = (rng.between(3, 51), rng.between(1, 9));
            (format!("{left} + {right}"), left + right)
        }
        1 => {
            let right = rng.between(1, 9);
            let left = rng.between(right + 1, 60);
            (format!("{left} - {right}"), left - right)
        }
        2 => {
            let right = rng.between(2, 6);
            let left = rng.between(2, 20.min(60 / right));
            (format!("{left} * {right}"), left * right)
        }
        _ => {
            let half = rng.between(1, 30);
            (format!("{} / 2", 2 * half), half)
        }
    }
}
