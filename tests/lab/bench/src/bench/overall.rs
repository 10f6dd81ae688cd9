//! Results over all problem sets: means, the Pareto front, presets derived set by set.

use serde::{Deserialize, Serialize};

use super::report::{Entry, TaskReport, round};

/// The conditions under which a decoder becomes a preset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// The preset's name.
    pub preset: &'static str,
    /// Points of strict accuracy: the lower end of the paired 95 % interval of the difference to the
    /// first decoder lies no lower below zero, on every set.
    pub may_lose: f64,
    /// The ridges at which its cost counts.
    pub ridges: &'static [u32],
    /// Costs up to this factor above the least are as good: they depend on the problems that were drawn.
    pub nearly: f64,
}

/// The derived presets: for one request and for many, for many, for one.
pub const PRESETS: [Tuned; 3] = [
    Tuned { preset: "balanced", may_lose: 3.0, ridges: &[11, 184], nearly: 1.05 },
    Tuned { preset: "fast", may_lose: 6.0, ridges: &[4, 11], nearly: 1.0 },
    Tuned { preset: "low_latency", may_lose: 3.0, ridges: &[184], nearly: 1.05 },
];

/// Rows that a machine computes while it reads the weights once: a CPU, a GPU with 16 sequences in
/// flight of which each has its share, a GPU with one (an H200 in bf16: 790 TFLOP/s over 4.3 TB/s).
pub const RIDGES: [u32; 3] = [4, 11, 184];

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
    /// Points of `strict` that it surely loses at most against the first decoder on every set.
    pub within: f64,
    /// The cheapest decoder that loses no more; among decoders that cost nearly as little, the one that loses
    /// least on its worst set.
    pub decoder: String,
    /// Its cost over the first decoder's: geometric mean over the sets and the preset's ridges.
    #[serde(default)]
    pub cost: f64,
}

/// One row per decoder, in the order of the tasks' rows.
pub fn overall(tasks: &[TaskReport]) -> Vec<Overall> {
    let first = tasks.first().map_or(&[][..], |task| &task.decoders);
    let mut rows: Vec<Overall> = first
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let all: Vec<&Entry> =
                tasks.iter().filter_map(|task| task.decoders.get(index)).collect();
            let mean_of = |figure: fn(&Entry) -> f64| mean(all.iter().map(|entry| figure(entry)));
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

/// For every preset of [`PRESETS`] the cheapest row that loses no more on any set, by the counts of
/// the rows and [`cost`], as [`choose`] takes it. The first row, which loses nothing, always qualifies.
/// Empty for results without paired intervals.
pub fn derived(tasks: &[TaskReport]) -> Vec<Derived> {
    let first = tasks.first().map_or(&[][..], |task| &task.decoders);
    if first.is_empty() || first.iter().any(|entry| entry.paired.is_none()) {
        return Vec::new();
    }
    let derive = |tuned: Tuned| {
        let qualifies = |index: &usize| tasks.iter().all(|task| tuned.admits(task, *index));
        let costs = (0..first.len()).filter(qualifies);
        let costs = costs.map(|index| (index, relative_cost(tasks, index, tuned.ridges)));
        let (index, cost) = choose(tasks, &costs.collect::<Vec<_>>(), tuned.nearly);
        Derived {
            preset: tuned.preset.to_owned(),
            within: tuned.may_lose,
            decoder: first[index].name.clone(),
            cost: round(cost, 4),
        }
    };
    PRESETS.into_iter().map(derive).collect()
}

impl Tuned {
    /// True if a row of a set surely loses no more against the first row, or is the first row.
    fn admits(self, task: &TaskReport, index: usize) -> bool {
        let paired = task.decoders.get(index).and_then(|row| row.paired);
        index == 0 || paired.is_some_and(|paired| paired.interval[0] >= -self.may_lose - EQUAL)
    }
}

/// The time of an output token in readings of the weights, at the mean number of rows of a forward
/// pass: a pass takes as long as one reading up to `ridge` rows, and in proportion to them above.
pub fn cost(entry: &Entry, ridge: u32) -> f64 {
    entry.nfe_per_token.max(entry.positions_per_token / f64::from(ridge))
}

/// The row and cost of `costs` that a preset takes: of the rows that cost up to `nearly` times as much as the
/// cheapest, the one that loses least on its worst set; of equals the first.
fn choose(tasks: &[TaskReport], costs: &[(usize, f64)], nearly: f64) -> (usize, f64) {
    let least = costs.iter().map(|cost| cost.1).fold(f64::MAX, f64::min);
    let worst = |index: usize| {
        let gains = tasks.iter().filter_map(|task| {
            Some(task.decoders.get(index)?.strict - task.decoders.first()?.strict)
        });
        gains.fold(f64::MAX, f64::min)
    };
    let near = costs.iter().filter(|cost| cost.1 <= nearly * least);
    let best =
        near.reduce(|best, cost| if worst(cost.0) > worst(best.0) + EQUAL { cost } else { best });
    best.copied().unwrap_or((0, 1.0))
}

/// The ratio of a row's cost to the first row's: geometric mean over the sets and the ridges.
fn relative_cost(tasks: &[TaskReport], index: usize, ridges: &[u32]) -> f64 {
    let pairs = tasks.iter().flat_map(|task| ridges.iter().map(move |ridge| (task, *ridge)));
    let ratios: Vec<f64> = pairs
        .filter_map(|(task, ridge)| {
            let (first, row) = (task.decoders.first()?, task.decoders.get(index)?);
            Some(cost(row, ridge) / cost(first, ridge).max(f64::MIN_POSITIVE))
        })
        .collect();
    geometric_mean(&ratios)
}

/// For each point (accuracy, speed), true if it is on the Pareto front: no other point is at least as good in
/// both and better in one. Equal points do not exclude each other.
pub fn pareto(points: &[(f64, f64)]) -> Vec<bool> {
    let beats = |(accuracy, speed): (f64, f64), (other, slower): (f64, f64)| {
        accuracy >= other && speed >= slower && (accuracy > other || speed > slower)
    };
    points.iter().map(|point| !points.iter().any(|other| beats(*other, *point))).collect()
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
