//! Results over all problem sets: means, the Pareto front, the derived presets.

use serde::{Deserialize, Serialize};

use super::report::{Entry, TaskReport, round};

/// The derived presets, and the points that each may lose against the first decoder, in `end` and in
/// `strict`.
pub const MAY_LOSE: [(&str, f64); 3] = [("quality", 0.0), ("balanced", 1.5), ("fast", 5.0)];

/// Rows with at least this share of the fastest row's speed are compared by positions per token.
const NEARLY: f64 = 0.9;

/// Accuracies have one decimal; smaller differences are equal.
const EQUAL: f64 = 1e-6;

/// One decoder over all problem sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// As in the tasks.
    pub name: String,
    /// schedule+commit+cache
    pub label: String,
    /// Mean over the sets, in percent.
    pub end: f64,
    /// Mean over the sets, in percent.
    pub strict: f64,
    /// Mean over the sets.
    pub nfe_per_token: f64,
    /// Mean over the sets.
    pub positions_per_token: f64,
    /// Mean over the sets, in percent; absent if a set lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Geometric mean over the sets of TPS over the first decoder's.
    pub ratio: f64,
    /// No other decoder is at least as good in both `strict` and `ratio` and better in one.
    pub pareto: bool,
}

/// A preset derived from the measured rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The preset's name.
    pub preset: String,
    /// Points that it may lose against the first decoder, in `end` and in `strict`.
    pub within: f64,
    /// The fastest decoder that loses no more; among equals the one with the fewest positions.
    pub decoder: String,
    /// Its ratio.
    pub ratio: f64,
}

/// One row per decoder, in the order of the tasks' rows.
pub fn overall(tasks: &[TaskReport]) -> Vec<Overall> {
    let first = tasks.first().map_or(&[][..], |task| &task.decoders);
    let mut rows: Vec<Overall> = first
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let all: Vec<&Entry> = tasks
                .iter()
                .filter_map(|task| task.decoders.get(index))
                .collect();
            let mean_of = |of: fn(&Entry) -> f64| mean(all.iter().map(|entry| of(entry)));
            let agreement: Option<Vec<f64>> = all.iter().map(|entry| entry.agreement).collect();
            let ratios: Vec<f64> = all.iter().map(|entry| entry.ratio).collect();
            Overall {
                name: entry.name.clone(),
                label: entry.label.clone(),
                end: round(mean_of(|entry| entry.end), 1),
                strict: round(mean_of(|entry| entry.strict), 1),
                nfe_per_token: round(mean_of(|entry| entry.nfe_per_token), 3),
                positions_per_token: round(mean_of(|entry| entry.positions_per_token), 1),
                agreement: agreement.map(|all| round(mean(all.into_iter()), 1)),
                ratio: round(geometric_mean(&ratios), 2),
                pareto: false,
            }
        })
        .collect();
    let points: Vec<(f64, f64)> = rows.iter().map(|row| (row.strict, row.ratio)).collect();
    for (row, front) in rows.iter_mut().zip(pareto(&points)) {
        row.pareto = front;
    }
    rows
}

/// For every preset of [`MAY_LOSE`] the fastest row that loses no more. Measured speeds vary, so among
/// the rows that are [`NEARLY`] as fast as the fastest, the one with the fewest positions per token is
/// taken. The first row, which loses nothing, always qualifies.
pub fn derived(rows: &[Overall]) -> Vec<Derived> {
    let Some(reference) = rows.first() else {
        return Vec::new();
    };
    let derive = |(preset, within): (&str, f64)| {
        let qualifies = |row: &&Overall| {
            reference.end - row.end <= within + EQUAL
                && reference.strict - row.strict <= within + EQUAL
        };
        let all = rows.iter().filter(qualifies);
        let fastest = all.clone().map(|row| row.ratio).fold(0.0, f64::max);
        let cheaper = |a: &&Overall, b: &&Overall| {
            let positions = a.positions_per_token.total_cmp(&b.positions_per_token);
            positions.then(b.ratio.total_cmp(&a.ratio))
        };
        let near = all.filter(|row| row.ratio >= NEARLY * fastest);
        let best = near.min_by(cheaper).unwrap_or(reference);
        Derived {
            preset: preset.to_owned(),
            within,
            decoder: best.name.clone(),
            ratio: best.ratio,
        }
    };
    MAY_LOSE.into_iter().map(derive).collect()
}

/// Whether each point (accuracy, speed) is on the Pareto front: no other point is at least as good in
/// both and better in one. Equal points do not exclude each other.
pub fn pareto(points: &[(f64, f64)]) -> Vec<bool> {
    let beats = |(accuracy, speed): (f64, f64), (other, slower): (f64, f64)| {
        accuracy >= other && speed >= slower && (accuracy > other || speed > slower)
    };
    points
        .iter()
        .map(|point| !points.iter().any(|other| beats(*other, *point)))
        .collect()
}

/// The n-th root of the product; 0 without values.
pub fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let logarithms = values.iter().map(|value| value.ln()).sum::<f64>();
    (logarithms / values.len() as f64).exp()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests;
