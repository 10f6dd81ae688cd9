//! S2D2's routers: which runs of masks are checked. Candidates have an entropy of one nat, so that with
//! an `entropy_scale` of ln 2 each guess is right with probability 1/2.

use asynclane_decode::{CommitConfig, DecoderConfig, Effect};

use crate::common::{Bench, block_wise, commit, masked};

const HALF: f64 = core::f64::consts::LN_2;

fn bench(commit: CommitConfig, block_length: u32, budget: u32) -> Bench {
    let config = DecoderConfig { commit, ..block_wise(block_length) };
    Bench::new(&config, budget)
}

fn rule(router: &'static str) -> CommitConfig {
    commit("self_speculative")
        .with("router", router)
        .with("threshold", 0.5)
        .with("entropy_scale", HALF)
}

const FOUR: [(u32, &str, f64); 4] = [(0, "a", 0.4), (1, " b", 0.3), (2, "c", 0.4), (3, "7", 0.4)];

/// True if a first step over `said` is followed by a check.
fn is_checked(rule: CommitConfig, said: &[(u32, &str, f64)]) -> bool {
    let mut bench = bench(rule, 4, 4);
    bench.step(said);
    !bench.decoder.guesses_to_check().is_empty()
}

/// Four guesses are expected to give 1/2 + 1/4 + 1/8 + 1/16 tokens.
#[test]
fn a_score_is_the_expected_number_of_right_guesses_less_a_penalty() {
    let threshold = |bound: f64| rule("score").with("score_on", bound);
    assert!(is_checked(threshold(-0.07), &FOUR));
    assert!(!is_checked(threshold(-0.06), &FOUR));
    assert!(is_checked(threshold(0.93).with("score_penalty", 0.0), &FOUR));
    assert!(!is_checked(threshold(0.94).with("score_penalty", 0.0), &FOUR));
    // Without uncertainty all four are expected to be right.
    assert!(is_checked(threshold(2.9).with("entropy_scale", 0.0), &FOUR));
}

/// A margin above 0.05 takes a confidence above 0.3667 here: the second guess ends the run.
#[test]
fn the_margin_expects_the_guesses_before_the_first_unsure_one() {
    let threshold = |bound: f64| rule("score").with("estimate", "margin").with("score_on", bound);
    assert!(is_checked(threshold(0.0), &FOUR));
    assert!(!is_checked(threshold(0.1), &FOUR));
}

/// The penalty of each token that needs no check: none here, then two.
#[test]
fn a_penalty_for_tokens_counts_the_sure_masks() {
    let effects = |said: &[(u32, &str, f64)]| {
        let rule = rule("score").with("score_penalty_for", "token");
        let mut bench = bench(rule, 4, 4);
        bench.step(said)
    };
    assert_eq!(effects(&FOUR), []);
    let said = [(0, "a", 0.6), (1, " b", 0.3), (2, "c", 0.7), (3, "7", 0.4)];
    assert_eq!(effects(&said)[..2], [masked(0, "a", 0.6), masked(2, "c", 0.7)]);
}

/// Runs of two score .45: they are checked after one of four, which scores .64, and not before.
#[test]
fn hysteresis_goes_on_until_the_lower_bound() {
    let rule = || {
        rule("hysteresis").with("score_penalty", 0.3).with("score_on", 0.5).with("score_off", 0.4)
    };
    let mut short = bench(rule(), 2, 2);
    assert_ne!(short.step(&FOUR[..2]), []);

    let mut long = bench(rule(), 4, 4);
    assert_eq!(long.step(&FOUR), []);
    long.step(&[(0, "a", 0.4), (1, "c", 0.4), (2, "c", 0.4), (3, "7", 0.4)]);
    assert_eq!(long.step(&FOUR[2..]), []);

    // Above the lower bound of this one: the run of two ends the checks.
    let mut long = bench(rule().with("score_off", 0.46), 4, 4);
    long.step(&FOUR);
    long.step(&[(0, "a", 0.4), (1, "c", 0.4), (2, "c", 0.4), (3, "7", 0.4)]);
    assert_ne!(long.step(&FOUR[2..]), []);
}

/// One token for each pass of a check, then three for one pass without: the third block is like the
/// second one.
#[test]
fn a_bandit_does_what_brought_more() {
    let rule = rule("bandit").with("exploration", 0.0).with("entropy_scale", 0.0);
    let mut bench = bench(rule, 4, 12);
    let block = |start: u32, sure: [f64; 4]| {
        let proposal = |index: u32| (start + index, "a", sure[index as usize]);
        [proposal(0), proposal(1), proposal(2), proposal(3)]
    };
    let three = [0.6, 0.6, 0.6, 0.4];
    let tokens = |effects: &[Effect]| {
        let is_commit = |effect: &&Effect| matches!(effect, Effect::Commit(_));
        effects.iter().filter(is_commit).count()
    };
    // The block is checked, and both of its runs.
    assert_eq!(bench.step(&block(0, three)), []);
    let other = [(0, "a", 0.4), (1, "c", 0.4), (2, "c", 0.4), (3, "7", 0.4)];
    assert_eq!(tokens(&bench.step(&other)), 2);
    assert_eq!(bench.step(&block(0, three)[2..]), []);
    assert_eq!(tokens(&bench.step(&block(0, three)[2..])), 2);
    assert_eq!(tokens(&bench.step(&block(4, three))), 3);
    assert_eq!(tokens(&bench.step(&block(4, three)[3..])), 1);
    assert_eq!(tokens(&bench.step(&block(8, three))), 3);
}
