//! Routers: which experts of a mixture process a row, and with which weights.

use crate::config::{RouterFunction, RouterSpec};
use crate::sharing::{Chosen, ExpertSharing, runs};
use kernels::device::BatchArrays;

/// Block length of expert sharing under full attention.
const SHARING_BLOCK: u32 = 32;

/// The rows that chose an expert, in ascending order, and its weight in each row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Choice {
    pub(crate) rows: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

/// Chooses experts for each row; computes in f32 for every weight dtype.
pub(crate) struct Router {
    /// Correction per expert.
    pub(crate) bias: Option<Vec<f32>>,
    /// A factor of each expert's weight.
    pub(crate) scales: Option<Vec<f32>>,
    pub(crate) spec: RouterSpec,
    /// The number of experts.
    pub(crate) count: usize,
    pub(crate) sharing: Option<ExpertSharing>,
}

impl Router {
    /// The rows and weights of each expert, from the logits `[rows, experts]` of the gate.
    pub(crate) fn choose(&self, logits: &[f32], arrays: &BatchArrays<'_>) -> Vec<Choice> {
        let count = self.count;
        let mut choices = vec![Choice::default(); count];
        let bias = self.bias.as_deref();
        let rows = logits.chunks_exact(count);
        let mut all: Vec<Chosen> = rows.map(|row| chosen(row, bias, self.spec)).collect();
        if let Some(sharing) = self.sharing {
            let length = self.spec.block.unwrap_or(SHARING_BLOCK);
            let segments = arrays.segments.iter();
            let segments =
                segments.map(|segment| segment.rows.start as usize..segment.rows.end as usize);
            for run in runs(segments, arrays.positions, length) {
                let pool = sharing.pool(&all[run.clone()], count);
                for row in run {
                    let logits = &logits[row * count..(row + 1) * count];
                    all[row] = chosen_of(&all[row], logits, bias, self.spec, &pool);
                }
            }
        }
        for (row, chosen) in all.iter().enumerate() {
            for &(expert, weight) in chosen {
                let scale = self.scales.as_ref().map_or(1.0, |scales| scales[expert]);
                choices[expert].rows.push(row as u32);
                choices[expert].weights.push(weight * scale);
            }
        }
        choices
    }
}

/// The best experts of one row within a pool. Their weights have the same sum as those of `own`,
/// the row's choice without a pool.
fn chosen_of(
    own: &Chosen,
    logits: &[f32],
    bias: Option<&[f32]>,
    spec: RouterSpec,
    pool: &[bool],
) -> Chosen {
    let total: f32 = own.iter().map(|(_, weight)| weight).sum();
    let function = match spec.function {
        // The weights are scaled below.
        RouterFunction::Softmax { .. } => RouterFunction::Softmax { normalised: false },
        // The pool replaces the groups.
        RouterFunction::Sigmoid { scale, .. } => {
            RouterFunction::Sigmoid { groups: 1, best: 1, scale }
        }
    };
    let closed = |expert: usize| if pool[expert] { 0.0 } else { f32::NEG_INFINITY };
    let bias = (0..logits.len()).map(|expert| closed(expert) + bias.map_or(0.0, |b| b[expert]));
    let bias: Vec<f32> = bias.collect();
    let mut picked = chosen(logits, Some(&bias), RouterSpec { function, ..spec });
    picked.retain(|(expert, _)| pool[*expert]);
    let sum: f32 = picked.iter().map(|(_, w)| w).sum();
    for (_, weight) in &mut picked {
        *weight *= total / sum;
    }
    picked
}

/// The experts of one row and their weights.
fn chosen(logits: &[f32], bias: Option<&[f32]>, spec: RouterSpec) -> Chosen {
    let own = match spec.function {
        RouterFunction::Softmax { .. } => softmax(logits),
        RouterFunction::Sigmoid { .. } => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
    };
    let corrected: Vec<f32> = match bias {
        Some(bias) => own.iter().zip(bias).map(|(affinity, b)| affinity + b).collect(),
        None => own.clone(),
    };
    match spec.function {
        RouterFunction::Softmax { normalised } => {
            let best = largest(&corrected, 0..corrected.len(), spec.chosen);
            let total: f32 = match normalised {
                true => best.iter().map(|&e| corrected[e]).sum(),
                false => 1.0,
            };
            best.into_iter().map(|e| (e, corrected[e] / total)).collect()
        }
        RouterFunction::Sigmoid { groups, best, scale } => {
            let size = corrected.len() / groups;
            let experts = |group: usize| group * size..(group + 1) * size;
            let sums: Vec<f32> = (0..groups)
                .map(|group| largest(&corrected, experts(group), 2))
                .map(|pair| pair.into_iter().map(|e| corrected[e]).sum())
                .collect();
            let among = largest(&sums, 0..groups, best).into_iter().flat_map(experts);
            let picked = largest(&corrected, among, spec.chosen);
            let total: f32 = match picked.len() {
                1 => 1.0,
                _ => picked.iter().map(|&e| own[e]).sum::<f32>() + 1e-20,
            };
            let weigh = |e: usize| (e, own[e] / total * scale);
            picked.into_iter().map(weigh).collect()
        }
    }
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|x| (x - most).exp()).collect();
    let total: f32 = powers.iter().sum();
    powers.iter().map(|power| power / total).collect()
}

/// The `count` indices with the largest affinities; of equal ones the lower index.
fn largest(affinities: &[f32], among: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = among.collect();
    indices.sort_by(|&a, &b| affinities[b].total_cmp(&affinities[a]).then(a.cmp(&b)));
    indices.truncate(count);
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(chosen: usize, function: RouterFunction) -> RouterSpec {
        RouterSpec { chosen, function, bias: true, block: None }
    }

    #[test]
    fn a_softmax_router_weighs_probabilities_of_all_experts() {
        let logits = [2f32.ln(), 0.0, 5f32.ln(), 0.0, 0.0];
        let near = |got: Vec<(usize, f32)>, want: &[(usize, f32)]| {
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(want) {
                assert_eq!(got.0, want.0);
                assert!((got.1 - want.1).abs() < 1e-6, "{got:?} for {want:?}");
            }
        };
        let softmax = |normalised| RouterFunction::Softmax { normalised };
        near(chosen(&logits, None, spec(2, softmax(false))), &[(2, 0.5), (0, 0.2)]);
        near(chosen(&logits, None, spec(2, softmax(true))), &[(2, 0.5 / 0.7), (0, 0.2 / 0.7)]);
        // The correction affects choice and weight; of equal affinities the first is chosen.
        let bias = [0.0, 0.6, 0.0, 0.0, 0.0];
        near(
            chosen(&logits, Some(&bias), spec(4, softmax(false))),
            &[(1, 0.7), (2, 0.5), (0, 0.2), (3, 0.1)],
        );
    }

    #[test]
    fn a_sigmoid_router_chooses_inside_the_best_groups() {
        let function = RouterFunction::Sigmoid { groups: 3, best: 1, scale: 2.0 };
        // The best expert's group has a low second affinity; the second group has the best pair.
        let logits = [9.0, -9.0, 1.0, 1.5, 0.0, 0.0];
        let pair = chosen(&logits, None, spec(2, function));
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let total = sigmoid(1.5) + sigmoid(1.0);
        let want = [(3, 2.0 * sigmoid(1.5) / total), (2, 2.0 * sigmoid(1.0) / total)];
        for (got, want) in pair.iter().zip(want) {
            assert_eq!(got.0, want.0);
            assert!((got.1 - want.1).abs() < 1e-6);
        }
        // A correction affects the choice but not the weight; a single expert's weight is its own
        // affinity.
        let bias = [0.0, 0.0, 0.0, 0.0, 2.0, 0.0];
        let one = chosen(&logits, Some(&bias), spec(1, function));
        assert_eq!(one, [(4, 2.0 * 0.5)]);
    }

    #[test]
    fn a_pool_narrows_a_choice_and_keeps_its_weight() {
        let sigmoid = RouterFunction::Sigmoid { groups: 3, best: 1, scale: 2.0 };
        let logits = [9.0, -9.0, 1.0, 1.5, 0.0, 0.0];
        let pool = [true, false, true, false, true, false];
        let names = |choice: &Chosen| choice.iter().map(|(expert, _)| *expert).collect::<Vec<_>>();
        let total = |choice: &Chosen| choice.iter().map(|(_, weight)| weight).sum::<f32>();
        for function in [sigmoid, RouterFunction::Softmax { normalised: false }] {
            let top_two = spec(2, function);
            let own = chosen(&logits, None, top_two);
            let narrowed = chosen_of(&own, &logits, None, top_two, &pool);
            assert_eq!(names(&narrowed), [0, 2]);
            assert!((total(&narrowed) - total(&own)).abs() < 1e-5);
            let few = chosen_of(&own, &logits, None, spec(4, function), &pool);
            assert_eq!(names(&few), [0, 2, 4], "the pool has three experts");
        }
    }
}
