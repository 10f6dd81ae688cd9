//! Commit rules by hand: which masks are chosen, and what happens on ties.

use asynclane_decode::{CommitConfig, CommitRule, DecoderConfig, Proposal, Threshold, TopK};

use crate::common::{Bench, advance, block_wise, candidate, masked};

/// The offsets that a rule chooses among masks with these probabilities at offsets 10, 11, ...
fn chosen(mut rule: impl CommitRule, probabilities: &[f64]) -> Vec<u32> {
    let propose = |(offset, probability): (u32, &f64)| Proposal {
        offset,
        candidate: candidate(3, *probability),
    };
    let masks: Vec<Proposal> = (10..).zip(probabilities).map(propose).collect();
    let mut chosen = Vec::new();
    rule.select(&masks, &mut chosen);
    let mut offsets: Vec<u32> = chosen
        .into_iter()
        .map(|index| masks[index].offset)
        .collect();
    offsets.sort_unstable();
    offsets
}

#[test]
fn threshold_takes_every_mask_that_reaches_it() {
    assert_eq!(
        chosen(Threshold::new(0.9), &[0.95, 0.2, 0.9, 0.899]),
        [10, 12]
    );
    assert_eq!(chosen(Threshold::new(0.0), &[0.0, 0.1]), [10, 11]);
    assert_eq!(chosen(Threshold::new(1.0), &[0.999_999, 1.0]), [11]);
}

#[test]
fn threshold_itself_may_choose_nothing() {
    assert_eq!(chosen(Threshold::new(0.9), &[0.5, 0.6]), []);
}

#[test]
fn top_k_takes_the_most_confident() {
    assert_eq!(chosen(TopK::new(2), &[0.1, 0.9, 0.3, 0.8]), [11, 13]);
    assert_eq!(chosen(TopK::new(4), &[0.1, 0.9]), [10, 11]);
    assert_eq!(chosen(TopK::new(0), &[0.1, 0.9]), [11], "k is at least 1");
}

#[test]
fn top_k_takes_the_lower_offsets_on_ties() {
    assert_eq!(chosen(TopK::new(2), &[0.5, 0.5, 0.5, 0.5]), [10, 11]);
    assert_eq!(chosen(TopK::new(2), &[0.5, 0.7, 0.5, 0.5]), [10, 11]);
    assert_eq!(
        chosen(TopK::new(3), &[0.2, 0.5, 0.7, 0.5, 0.5]),
        [11, 12, 13]
    );
}

/// Vanilla LLaDA orders tokens whose probability is within 1e-8 of one.
#[test]
fn top_k_sees_differences_below_single_precision() {
    let close = [1.0 - 3e-10, 1.0 - 1e-10, 1.0 - 2e-10];
    assert_eq!(chosen(TopK::new(1), &close), [11]);
    assert_eq!(chosen(TopK::new(2), &close), [11, 12]);
}

#[test]
fn a_lane_below_the_threshold_commits_its_best_mask() {
    let mut bench = Bench::new(&block_wise(4), 4);
    let effects = bench.step(&[(0, "a", 0.3), (1, "c", 0.7), (2, "7", 0.6), (3, "a", 0.2)]);
    assert_eq!(effects, [masked(1, "c", 0.7)]);
}

#[test]
fn on_a_tie_the_best_mask_is_the_lower_one() {
    let mut bench = Bench::new(&block_wise(4), 4);
    let tied = [(0, "a", 0.3), (1, "c", 0.7), (2, "7", 0.7), (3, "a", 0.7)];
    assert_eq!(bench.step(&tied), [masked(1, "c", 0.7)]);
    assert_eq!(
        bench.step(&[(2, "7", 0.7), (3, "a", 0.7)]),
        [masked(2, "7", 0.7)]
    );
}

/// Two tokens per step over one block: the commits come by offset, whatever their order.
#[test]
fn top_k_fills_a_block_two_by_two() {
    let commit = CommitConfig::TopK { tokens_per_step: 2 };
    let mut bench = Bench::new(
        &DecoderConfig {
            commit,
            ..block_wise(4)
        },
        8,
    );
    let effects = bench.step(&[(0, "a", 0.2), (1, "c", 0.4), (2, "7", 0.3), (3, "a", 0.9)]);
    assert_eq!(effects, [masked(1, "c", 0.4), masked(3, "a", 0.9)]);
    let effects = bench.step(&[(0, "a", 0.2), (2, "7", 0.3)]);
    assert_eq!(effects[..2], [masked(0, "a", 0.2), masked(2, "7", 0.3)]);
    assert_eq!(effects.last(), Some(&advance(0, 4)));
}
