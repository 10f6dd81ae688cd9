//! Commit rules on hand-made masks: which are chosen, and which on ties.

use asynclane_decode::{
    Candidate, CommitConfig, CommitInput, CommitRule, DecoderConfig, Lane, LaneId, Proposal, Role,
    Status,
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

fn mask(offset: u32, probability: f64) -> Proposal {
    Proposal { offset: at(offset), candidate: candidate(3, probability) }
}

/// Masks with these probabilities at offsets 10, 11, ...
fn masks(probabilities: &[f64]) -> Vec<Proposal> {
    let masks = (10..).zip(probabilities);
    masks.map(|(offset, probability)| mask(offset, *probability)).collect()
}

/// Masks with these entropies at offsets 10, 11, ...
fn narrow(entropies: &[f32]) -> Vec<Proposal> {
    let mut all = masks(&vec![0.5; entropies.len()]);
    for (mask, entropy) in all.iter_mut().zip(entropies) {
        mask.candidate.entropy = *entropy;
    }
    all
}

fn built(rule: &CommitConfig) -> Box<dyn CommitRule> {
    rule.build(&CommitInput::default())
}

/// The offsets that a rule chooses among some masks.
fn chosen_of(rule: &mut dyn CommitRule, masks: &mut [Proposal]) -> Vec<u32> {
    let mut chosen = Vec::new();
    rule.select(&lane(0), masks, &mut chosen);
    let mut offsets: Vec<u32> = chosen.into_iter().map(|index| masks[index].offset.get()).collect();
    offsets.sort_unstable();
    offsets
}

#[test]
fn rules_of_confidences_choose_by_them() {
    let threshold = |threshold: f64| commit("threshold").with("threshold", threshold);
    // LLaDA2.0 with half as many steps as positions.
    let fewest = threshold(0.9).with("min_tokens_per_step", 2u32);
    let top_k = |count: u32| commit("top_k").with("tokens_per_step", count);
    let factor = |factor: f64| commit("factor").with("factor", factor);
    let margin = |threshold: f64| commit("margin").with("margin_threshold", threshold);
    let capped = |threshold: f64, most: u32| {
        let rule = commit("capped").with("threshold", threshold);
        rule.with("tokens_per_step", most)
    };
    let hierarchy = commit("hierarchy");
    // Vanilla LLaDA orders tokens whose probability is within 1e-8 of one.
    let close = [1.0 - 3e-10, 1.0 - 1e-10, 1.0 - 2e-10];
    let all = [0.96, 0.99, 0.2, 0.97];
    let mut leap = [0.1; 12];
    (leap[3], leap[7], leap[8], leap[0]) = (0.95, 0.8, 0.8, 0.74);
    let mut no_anchor = leap;
    no_anchor[3] = 0.85;
    let cases: Vec<(CommitConfig, &[f64], &[u32])> = vec![
        (threshold(0.9), &[0.95, 0.2, 0.9, 0.899], &[10, 12]),
        (threshold(0.0), &[0.0, 0.1], &[10, 11]),
        (threshold(1.0), &[0.999_999, 1.0], &[11]),
        (threshold(0.9), &[0.5, 0.6], &[]),
        (fewest.clone(), &[0.5, 0.6, 0.95, 0.1], &[11, 12]),
        (fewest.clone(), &[0.91, 0.92, 0.95, 0.1], &[10, 11, 12]),
        (fewest, &[0.2], &[10]),
        (top_k(2), &[0.1, 0.9, 0.3, 0.8], &[11, 13]),
        (top_k(4), &[0.1, 0.9], &[10, 11]),
        // The lower offsets on ties.
        (top_k(2), &[0.5, 0.5, 0.5, 0.5], &[10, 11]),
        (top_k(2), &[0.5, 0.7, 0.5, 0.5], &[10, 11]),
        (top_k(3), &[0.2, 0.5, 0.7, 0.5, 0.5], &[11, 12, 13]),
        (top_k(1), &close, &[11]),
        (top_k(2), &close, &[11, 12]),
        // 1 - 1/3 = 0.667 for two, 1 - 1/4 = 0.75 for three, 0.8 for four tokens at once; the last mask
        // comes with all others, and one is always allowed.
        (factor(1.0), &[0.7, 0.2, 0.9, 0.7], &[10, 12]),
        (factor(1.0), &[0.76, 0.2, 0.9, 0.75, 0.1], &[10, 12, 13]),
        (factor(1.0), &[0.9, 0.1], &[10, 11]),
        (factor(1.0), &[0.9, 0.1, 0.8], &[10, 11, 12]),
        (factor(1.0), &[0.1, 0.3, 0.2], &[11]),
        (factor(2.0), &[0.5, 0.3, 0.4, 0.1], &[10, 12]),
        // The third fails 0.75, so the fourth is not considered.
        (factor(1.0), &[0.9, 0.8, 0.7, 0.99, 0.79], &[10, 11, 13]),
        // The runner-up has half of what is left: leads of 0.85 and 0.55.
        (margin(0.8), &[0.9, 0.7], &[10]),
        (margin(0.9), &[0.7, 0.9], &[]),
        (capped(0.95, 2), &all, &[11, 13]),
        (capped(0.95, 8), &all, &[10, 11, 13]),
        (capped(1.0, 8), &all, &[11]),
        // Within four positions of an anchor.
        (commit("local_leap"), &leap, &[13, 17]),
        (commit("local_leap"), &no_anchor, &[]),
        (hierarchy, &[0.3, 0.5, 0.45], &[11]),
    ];
    for (rule, probabilities, expected) in cases {
        let found = chosen_of(&mut *built(&rule), &mut masks(probabilities));
        assert_eq!(found, expected, "{rule:?} {probabilities:?}");
    }
    let mut runs =
        [(10, 0.3), (11, 0.5), (12, 0.45), (20, 0.2), (21, 0.39), (25, 0.92), (26, 0.95)]
            .map(|(offset, probability)| mask(offset, probability));
    let mut rule = built(&commit("hierarchy"));
    assert_eq!(chosen_of(&mut *rule, &mut runs), [11, 25, 26]);
    let lead = built(&margin(0.9)).worth(&mask(10, 0.9));
    assert!((lead - 0.85).abs() < 1e-12);
}

#[test]
fn rules_of_entropies_choose_by_them() {
    let entropy = || commit("entropy");
    // WeDLM compares with `<`, dParallel with `<=`; WeDLM §3: 0.1 nats more for every position after the
    // first mask.
    let below = entropy().with("below", true);
    let near = entropy().with("position_penalty", 0.1);
    let bound = |bound: f64| commit("entropy_bound").with("entropy_threshold", bound);
    let cases: Vec<(CommitConfig, &[f32], &[u32])> = vec![
        (entropy(), &[0.4, 0.6, 0.5], &[10, 12]),
        (entropy(), &[0.9, 0.6], &[]),
        (entropy(), &[0.5, 0.25, 0.75], &[10, 11]),
        (below, &[0.5, 0.25, 0.75], &[11]),
        (near.clone(), &[0.6, 0.35, 0.35, 0.1], &[11, 13]),
        // Sorted 0.05, 0.1, 0.2, 0.3: those before the third sum to 0.15, before the fourth to 0.35.
        (bound(0.16), &[0.3, 0.05, 0.2, 0.1], &[11, 12, 13]),
        (bound(0.36), &[0.3, 0.05, 0.2, 0.1], &[10, 11, 12, 13]),
        (bound(0.0), &[0.3, 0.2], &[11]),
        // Certain tokens cost nothing.
        (bound(0.0), &[0.0, 0.0, 0.2], &[10, 11, 12]),
    ];
    // Equally probable masks stay in order. RND1: 0, then 0.05, then 0.25 nats beside the largest.
    let surest = |limit: f64| bound(limit).with("order", "confidence");
    let surest: [(CommitConfig, &[f32], &[u32]); 3] = [
        (surest(0.0), &[0.3, 0.05, 0.2, 0.1], &[10]),
        (surest(0.2), &[0.3, 0.05, 0.2, 0.1], &[10, 11]),
        (surest(0.26), &[0.3, 0.05, 0.2, 0.1], &[10, 11, 12]),
    ];
    for (rule, entropies, expected) in cases.into_iter().chain(surest) {
        let found = chosen_of(&mut *built(&rule), &mut narrow(entropies));
        assert_eq!(found, expected, "{rule:?} {entropies:?}");
    }
    let rule = built(&near);
    let worth: Vec<f64> = (narrow(&[0.7, 0.5, 0.5]).iter()).map(|mask| rule.worth(mask)).collect();
    assert!(worth[1] > worth[0] && worth[1] > worth[2], "{worth:?}");
}

/// CD4LM: while less than half of the budget is committed, a stop token waits for the others.
#[test]
fn capped_may_hold_back_stop_tokens() {
    let config = DecoderConfig {
        commit: commit("capped").with("threshold", 0.5).with("stop_after", 0.5),
        ..block_wise(4)
    };
    let mut bench = Bench::new(&config, 4);
    let said = [(0, "a", 0.6), (1, "<eos>", 0.9), (2, "7", 0.1), (3, "<eot>", 0.8)];
    assert_eq!(bench.step(&said)[..2], [masked(0, "a", 0.6), advance(0, 1)]);
    // Only stop tokens are left: the surest one goes.
    let said = [(1, "<eos>", 0.6), (2, "<eos>", 0.7), (3, "<eos>", 0.9)];
    assert_eq!(bench.step(&said), [masked(3, "<eos>", 0.9)]);
    let said = [(1, "<eos>", 0.6), (2, "<eos>", 0.4)];
    assert_eq!(bench.step(&said)[0], masked(1, "<eos>", 0.6));
}

/// p 0.8 in every step: C = 0.9564 after one step, C = 0.8 C + 0.9564 after each further one.
#[test]
fn credit_grows_while_a_token_stays_the_favourite() {
    let mut rule = built(&commit("credit"));
    let mut steps = Vec::new();
    for _ in 0..4 {
        let mut masks = [mask(10, 0.8)];
        let chosen = chosen_of(&mut *rule, &mut masks);
        steps.push((masks[0].candidate.probability, chosen.len()));
    }
    // (1 + C)^0.7 = 1.5996, 2.0154, 2.3230, ... over odds of 4.
    for ((confidence, _), boost) in steps.iter().zip([1.5996, 2.0154, 2.3230]) {
        let expected = 4.0 * boost / (4.0 * boost + 1.0);
        assert!((confidence - expected).abs() < 1e-4, "{steps:?}");
    }
    let chosen: Vec<usize> = steps.iter().map(|step| step.1).collect();
    assert_eq!(chosen, [0, 0, 1, 1]);
}

/// Lanes of one sequence share the rule, but each decays its own credits.
#[test]
fn credit_decays_once_a_step_whatever_other_lanes_do() {
    let other = Lane { start: at(40), ..lane(1) };
    let run = |lanes: &[&Lane]| {
        let mut rule = built(&commit("credit"));
        let mut last = 0.0;
        for lane in lanes.repeat(3) {
            let mut masks = [mask(lane.start.get(), 0.8)];
            rule.select(lane, &mut masks, &mut Vec::new());
            last = masks[0].candidate.probability;
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
    let token = |rule: &mut dyn CommitRule, id: u32, proposal: Proposal| {
        let mut masks = [proposal];
        rule.select(&lane(id), &mut masks, &mut Vec::new());
        masks[0].candidate.token
    };
    // Token 4 leads by little: the credits of token 3 outweigh the lead, unless another lane begins.
    let close = said(4, 0.46, 3, 0.44);
    for (lane, expected) in [(0, 3), (1, 4)] {
        let mut rule = built(&commit("credit"));
        for _ in 0..4 {
            token(&mut *rule, 0, said(3, 0.6, 4, 0.3));
        }
        assert_eq!(token(&mut *rule, lane, close), expected);
    }
    // A sampled token stays, even if it is not the most probable one.
    let drawn = said(4, 0.2, 3, 0.7);
    assert_eq!(token(&mut *built(&commit("credit")), 0, drawn), 4);
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
    assert_eq!(bench.step(&[(2, "7", 0.7), (3, "a", 0.7)]), [masked(2, "7", 0.7)]);
}

/// Two tokens per step over one block: effects are ordered by offset, not by confidence.
#[test]
fn top_k_fills_a_block_two_by_two() {
    let commit = commit("top_k").with("tokens_per_step", 2u32);
    let mut bench = Bench::new(&DecoderConfig { commit, ..block_wise(4) }, 8);
    let effects = bench.step(&[(0, "a", 0.2), (1, "c", 0.4), (2, "7", 0.3), (3, "a", 0.9)]);
    assert_eq!(effects, [masked(1, "c", 0.4), masked(3, "a", 0.9)]);
    let effects = bench.step(&[(0, "a", 0.2), (2, "7", 0.3)]);
    assert_eq!(effects[..2], [masked(0, "a", 0.2), masked(2, "7", 0.3)]);
    assert_eq!(effects.last(), Some(&advance(0, 4)));
}

/// Dream's timetable of ten steps over 24 masks, as its published sampler counts: numbers are
/// rounded down, and the last step commits the rest. With as many steps as masks the first would commit
/// nothing, and the last two: a step without commits is left out. RND1's shares are of the whole.
#[test]
fn a_timetable_gives_the_number_of_commits() {
    for (timetable, steps, mut left, expected) in [
        ("left", 10u32, 24, vec![2, 2, 2, 2, 2, 2, 2, 3, 3, 4]),
        ("left", 8, 8, vec![1, 1, 1, 1, 1, 1, 2]),
        ("whole", 10, 24, vec![3, 2, 3, 2, 2, 3, 2, 3, 2, 2]),
        ("whole", 8, 8, vec![1; 8]),
        ("whole", 9, 4, vec![1; 4]),
    ] {
        let rule = commit("scheduled").with("denoising_steps", steps).with("timetable", timetable);
        let mut rule = built(&rule);
        let mut counts = Vec::new();
        while left > 0 {
            let count = chosen_of(&mut *rule, &mut masks(&vec![0.5; left])).len();
            counts.push(count);
            left -= count;
        }
        assert_eq!(counts, expected);
    }
}

/// The step, from 0, in which Dream's order `origin` commits each of the masks at `offsets`.
fn steps_of(seed: u64, steps: u32, offsets: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let rule = commit("scheduled").with("rank", "origin");
    let mut rule =
        rule.with("denoising_steps", steps).build(&CommitInput { seed, ..CommitInput::default() });
    // The surest is no likelier to be picked.
    let mut open: Vec<_> =
        offsets.map(|offset| mask(offset, f64::from(offset + 1) / 100.0)).collect();
    let mut found = Vec::new();
    for step in 0.. {
        if open.is_empty() {
            break;
        }
        let chosen = chosen_of(&mut *rule, &mut open);
        assert!(!chosen.is_empty(), "every step commits");
        found.extend(chosen.iter().map(|offset| (*offset, step)));
        open.retain(|mask| !chosen.contains(&mask.offset.get()));
    }
    found.sort_unstable();
    found
}

/// t falls evenly, so the chance of a mask to be committed in step i is (t_i - t_(i+1)) / 1: a quarter
/// of all masks in each of four steps, whatever their probabilities.
#[test]
fn by_chance_every_step_commits_as_many_masks_as_the_timetable_says() {
    let mut counts = [0u32; 4];
    let mut left_half = 0u32;
    for seed in 0..200 {
        for (offset, step) in steps_of(seed, 4, 0..64) {
            counts[step as usize] += 1;
            left_half += u32::from(step == 0 && offset < 32);
        }
    }
    for count in counts {
        // Five standard deviations of a binomial count.
        assert!(count.abs_diff(3200) < 250, "{counts:?}");
    }
    assert!(left_half.abs_diff(1600) < 200, "{left_half}");
    // With more steps than masks, steps that pick nothing are left out.
    let last = steps_of(1, 100, 0..3).into_iter().map(|(_, step)| step).max();
    assert!(last < Some(3), "{last:?}");
}

#[test]
fn the_order_by_chance_depends_on_seed_and_offset_alone() {
    let all = steps_of(7, 4, 0..64);
    assert_eq!(steps_of(7, 4, 0..64), all);
    assert_ne!(steps_of(8, 4, 0..64), all);
    // Other masks change nothing for those that are left.
    let even = steps_of(7, 4, (0..64).step_by(2));
    let expected: Vec<_> = all.into_iter().filter(|mask| mask.0 % 2 == 0).collect();
    assert_eq!(even, expected);
}
