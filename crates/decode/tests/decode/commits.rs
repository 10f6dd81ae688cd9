//! Commit rules on hand-made masks: which are chosen, and which on ties.

use asynclane_decode::{
    Candidate, Capped, CommitRule, Credit, DecoderConfig, Entropy, EntropyBound, Factor, Hierarchy,
    Lane, LaneId, LocalLeap, Margin, Proposal, Rank, Role, Scheduled, Status, Threshold, TopK,
};

use crate::common::{Bench, advance, at, block_wise, candidate, commit, masked};

/// A lane of the offsets from 10 on.
fn lane(id: u32) -> Lane {
    Lane {
        id: LaneId(id),
        role: Role::Generate,
        start: at(10),
        len: 20,
        clock: 0,
        parent: None,
        children: [None; 2],
        status: Status::Active,
    }
}

/// The offsets that a rule chooses among some masks.
fn chosen_of(rule: &mut impl CommitRule, masks: &mut [Proposal]) -> Vec<u32> {
    let mut chosen = Vec::new();
    rule.select(&lane(0), masks, &mut chosen);
    let mut offsets: Vec<u32> = chosen
        .into_iter()
        .map(|index| masks[index].offset.get())
        .collect();
    offsets.sort_unstable();
    offsets
}

/// The offsets that a rule chooses among masks with these probabilities at offsets 10, 11, ...
fn chosen(mut rule: impl CommitRule, probabilities: &[f64]) -> Vec<u32> {
    chosen_by(&mut rule, probabilities)
}

/// As [`chosen`], by a rule that keeps its state.
fn chosen_by(rule: &mut impl CommitRule, probabilities: &[f64]) -> Vec<u32> {
    let propose = |(offset, probability): (u32, &f64)| Proposal {
        offset: at(offset),
        candidate: candidate(3, *probability),
    };
    let mut masks: Vec<Proposal> = (10..).zip(probabilities).map(propose).collect();
    chosen_of(rule, &mut masks)
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

/// LLaDA2.0 with half as many steps as positions.
#[test]
fn threshold_takes_at_least_the_fewest() {
    let rule = || Threshold::new(0.9).with_fewest(2);
    assert_eq!(chosen(rule(), &[0.5, 0.6, 0.95, 0.1]), [11, 12]);
    assert_eq!(chosen(rule(), &[0.91, 0.92, 0.95, 0.1]), [10, 11, 12]);
    assert_eq!(chosen(rule(), &[0.2]), [10]);
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

/// 1 - 1/3 = 0.667 for two, 1 - 1/4 = 0.75 for three, 0.8 for four tokens at once; the last mask comes
/// with all others.
#[test]
fn factor_asks_more_of_more_tokens() {
    assert_eq!(chosen(Factor::new(1.0), &[0.7, 0.2, 0.9, 0.7]), [10, 12]);
    assert_eq!(
        chosen(Factor::new(1.0), &[0.76, 0.2, 0.9, 0.75, 0.1]),
        [10, 12, 13]
    );
    assert_eq!(chosen(Factor::new(1.0), &[0.9, 0.1]), [10, 11]);
    assert_eq!(chosen(Factor::new(1.0), &[0.9, 0.1, 0.8]), [10, 11, 12]);
    assert_eq!(
        chosen(Factor::new(1.0), &[0.1, 0.3, 0.2]),
        [11],
        "one is always allowed"
    );
    assert_eq!(chosen(Factor::new(2.0), &[0.5, 0.3, 0.4, 0.1]), [10, 12]);
    // The third fails 0.75, so the fourth is not considered.
    assert_eq!(
        chosen(Factor::new(1.0), &[0.9, 0.8, 0.7, 0.99, 0.79]),
        [10, 11, 13]
    );
}

/// Masks with these entropies at offsets 10, 11, ...
fn narrow(entropies: &[f32]) -> Vec<Proposal> {
    let propose = |(offset, entropy): (u32, &f32)| Proposal {
        offset: at(offset),
        candidate: Candidate {
            entropy: *entropy,
            ..candidate(3, 0.5)
        },
    };
    (10..).zip(entropies).map(propose).collect()
}

#[test]
fn entropy_takes_every_narrow_mask_and_holds_the_narrowest_worthiest() {
    let chosen = |entropies: &[f32]| chosen_of(&mut Entropy::new(0.5), &mut narrow(entropies));
    assert_eq!(chosen(&[0.4, 0.6, 0.5]), [10, 12]);
    assert_eq!(chosen(&[0.9, 0.6]), []);
    let masks = narrow(&[0.9, 0.6]);
    let rule = Entropy::new(0.5);
    assert!(rule.worth(&masks[1]) > rule.worth(&masks[0]));
}

/// WeDLM §3: 0.1 nats more for every position after the first mask.
#[test]
fn a_position_penalty_prefers_what_is_near() {
    let rule = || Entropy::new(0.5).with_penalty(0.1);
    let mut masks = narrow(&[0.6, 0.35, 0.35, 0.1]);
    assert_eq!(chosen_of(&mut rule(), &mut masks), [11, 13]);
    let masks = narrow(&[0.7, 0.5, 0.5]);
    let worth: Vec<f64> = masks.iter().map(|mask| rule().worth(mask)).collect();
    assert!(worth[1] > worth[0] && worth[1] > worth[2], "{worth:?}");
}

/// WeDLM compares with `<`, dParallel with `<=`.
#[test]
fn entropy_may_have_to_lie_below_the_threshold() {
    let mut masks = narrow(&[0.5, 0.25, 0.75]);
    assert_eq!(chosen_of(&mut Entropy::new(0.5), &mut masks), [10, 11]);
    let mut below = Entropy::new(0.5).strictly_below();
    assert_eq!(chosen_of(&mut below, &mut masks), [11]);
}

/// Sorted 0.05, 0.1, 0.2, 0.3: those before the third sum to 0.15, before the fourth to 0.35.
#[test]
fn entropy_bound_takes_what_the_budget_allows() {
    let chosen =
        |bound, entropies: &[f32]| chosen_of(&mut EntropyBound::new(bound), &mut narrow(entropies));
    assert_eq!(chosen(0.16, &[0.3, 0.05, 0.2, 0.1]), [11, 12, 13]);
    assert_eq!(chosen(0.36, &[0.3, 0.05, 0.2, 0.1]), [10, 11, 12, 13]);
    assert_eq!(chosen(0.0, &[0.3, 0.2]), [11]);
    assert_eq!(
        chosen(0.0, &[0.0, 0.0, 0.2]),
        [10, 11, 12],
        "certain tokens cost nothing"
    );
}

/// The runner-up of a candidate here has half of what is left.
#[test]
fn margin_takes_every_clear_lead_and_holds_the_clearest_worthiest() {
    // Leads of 0.85 and 0.55.
    assert_eq!(chosen(Margin::new(0.8), &[0.9, 0.7]), [10]);
    assert_eq!(chosen(Margin::new(0.9), &[0.7, 0.9]), []);
    let mask = |probability| Proposal {
        offset: at(10),
        candidate: candidate(3, probability),
    };
    let rule = Margin::new(0.9);
    assert!((rule.worth(&mask(0.9)) - 0.85).abs() < 1e-12);
}

#[test]
fn capped_is_a_threshold_with_a_most() {
    let all = [0.96, 0.99, 0.2, 0.97];
    assert_eq!(chosen(Capped::new(0.95, 2), &all), [11, 13]);
    assert_eq!(chosen(Capped::new(0.95, 8), &all), [10, 11, 13]);
    assert_eq!(chosen(Capped::new(1.0, 8), &all), [11]);
}

/// CD4LM: while less than half of the budget is committed, a stop token waits for the others.
#[test]
fn capped_may_hold_back_stop_tokens() {
    let config = DecoderConfig {
        commit: commit("capped")
            .with("threshold", 0.5)
            .with("stop_after", 0.5),
        ..block_wise(4)
    };
    let mut bench = Bench::new(&config, 4);
    let said = [
        (0, "a", 0.6),
        (1, "<eos>", 0.9),
        (2, "7", 0.1),
        (3, "<eot>", 0.8),
    ];
    assert_eq!(bench.step(&said)[..2], [masked(0, "a", 0.6), advance(0, 1)]);
    // Only stop tokens are left: the surest one goes.
    let said = [(1, "<eos>", 0.6), (2, "<eos>", 0.7), (3, "<eos>", 0.9)];
    assert_eq!(bench.step(&said), [masked(3, "<eos>", 0.9)]);
    let said = [(1, "<eos>", 0.6), (2, "<eos>", 0.4)];
    assert_eq!(bench.step(&said)[0], masked(1, "<eos>", 0.6));
}

#[test]
fn local_leap_relaxes_within_four_positions_of_an_anchor() {
    let mut all = [0.1; 12];
    (all[3], all[7], all[8], all[0]) = (0.95, 0.8, 0.8, 0.74);
    assert_eq!(chosen(LocalLeap::new(0.9), &all), [13, 17]);
    all[3] = 0.85;
    assert_eq!(chosen(LocalLeap::new(0.9), &all), [], "no anchor, no leap");
}

#[test]
fn hierarchy_takes_the_best_of_every_run() {
    let mask = |offset, probability| Proposal {
        offset: at(offset),
        candidate: candidate(3, probability),
    };
    let mut masks = [
        mask(10, 0.3),
        mask(11, 0.5),
        mask(12, 0.45),
        mask(20, 0.2),
        mask(21, 0.39),
        mask(25, 0.92),
        mask(26, 0.95),
    ];
    let mut rule = Hierarchy::new(0.9);
    assert_eq!(chosen_of(&mut rule, &mut masks), [11, 25, 26]);
}

/// p 0.8 in every step: C = 0.9564 after one step, C = 0.8 C + 0.9564 after each further one.
#[test]
fn credit_grows_while_a_token_stays_the_favourite() {
    let mut rule = Credit::new(0.9);
    let mut confidences = Vec::new();
    let chosen: Vec<_> = (0..4)
        .map(|_| {
            let mut masks = [Proposal {
                offset: at(10),
                candidate: candidate(3, 0.8),
            }];
            let chosen = chosen_of(&mut rule, &mut masks);
            confidences.push(masks[0].candidate.probability);
            !chosen.is_empty()
        })
        .collect();
    // (1 + C)^0.7 = 1.5996, 2.0154, 2.3230, ... over odds of 4.
    let expected = |boost: f64| 4.0 * boost / (4.0 * boost + 1.0);
    for (confidence, boost) in confidences.iter().zip([1.5996, 2.0154, 2.3230]) {
        assert!(
            (confidence - expected(boost)).abs() < 1e-4,
            "{confidences:?}"
        );
    }
    assert_eq!(chosen, [false, false, true, true]);
}

/// Lanes of one sequence share the rule, but each decays its own credits.
#[test]
fn credit_decays_once_a_step_whatever_other_lanes_do() {
    let mask = |offset| Proposal {
        offset,
        candidate: candidate(3, 0.8),
    };
    let other = Lane {
        start: at(40),
        ..lane(1)
    };
    let run = |lanes: &[&Lane]| {
        let mut rule = Credit::new(0.9);
        let mut last = 0.0;
        for _ in 0..3 {
            for lane in lanes {
                let mut masks = [mask(lane.start)];
                rule.select(lane, &mut masks, &mut Vec::new());
                last = masks[0].candidate.probability;
            }
        }
        last
    };
    assert_eq!(run(&[&other, &lane(0)]), run(&[&lane(0)]));
}

#[test]
fn credit_lets_an_old_favourite_win_and_a_new_lane_forgets() {
    let said = |token, probability, runner_up, second| Proposal {
        offset: at(10),
        candidate: Candidate {
            runner_up,
            runner_up_probability: second,
            ..candidate(token, probability)
        },
    };
    let mut rule = Credit::new(0.9);
    let run = |rule: &mut Credit, id: u32, proposal: Proposal| {
        let mut masks = [proposal];
        rule.select(&lane(id), &mut masks, &mut Vec::new());
        masks[0].candidate
    };
    for _ in 0..4 {
        run(&mut rule, 0, said(3, 0.6, 4, 0.3));
    }
    // Token 4 leads by little: the credits of token 3 outweigh the lead.
    let close = said(4, 0.46, 3, 0.44);
    assert_eq!(run(&mut rule.clone(), 0, close).token, 3);
    assert_eq!(
        run(&mut rule, 1, close).token,
        4,
        "another lane begins anew"
    );
    // A sampled token stays, even if it is not the most probable one.
    let drawn = said(4, 0.2, 3, 0.7);
    let mut rule = Credit::new(0.9);
    assert_eq!(run(&mut rule, 0, drawn).token, 4);
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

/// Two tokens per step over one block: effects are ordered by offset, not by confidence.
#[test]
fn top_k_fills_a_block_two_by_two() {
    let commit = commit("top_k").with("tokens_per_step", 2u32);
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

/// Dream's timetable of ten steps over 24 masks, as its published sampler counts: numbers are
/// rounded down, and the last step commits the rest.
#[test]
fn a_timetable_says_how_many() {
    let mut rule = Scheduled::new(Some(10), Rank::Confidence);
    let mut left = 24;
    let mut counts = Vec::new();
    while left > 0 {
        let count = chosen_by(&mut rule, &vec![0.5; left]).len();
        counts.push(count);
        left -= count;
    }
    assert_eq!(counts, [2, 2, 2, 2, 2, 2, 2, 3, 3, 4]);
}

/// With as many steps as masks the first would commit nothing, and the last two.
#[test]
fn a_step_of_the_timetable_without_commits_is_left_out() {
    let mut rule = Scheduled::new(Some(8), Rank::Confidence);
    let counts: Vec<usize> = [8, 7, 6, 5, 4, 3, 2]
        .into_iter()
        .map(|left| chosen_by(&mut rule, &vec![0.5; left]).len())
        .collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 2]);
}
