//! One choice for all lanes and their lookahead, on hand-made steps.

use asynclane_decode::{Birth, Candidate, CommitConfig, DecoderConfig, Effect, ScheduleConfig};

use crate::common::{
    Bench, advance, asynclane, candidate, commit, draft, finish, fork, generate, id, masked,
    refine, with_schedule,
};

/// Lanes of four, a lookahead of two, drafts from 0.5 on.
fn bench(commit: CommitConfig, schedule: ScheduleConfig) -> Bench {
    let config = DecoderConfig { commit, ..with_schedule(schedule) };
    Bench::new(&config, 16)
}

fn short() -> ScheduleConfig {
    asynclane()
        .with("block_length", 4u32)
        .with("lookahead", 2u32)
        .with("draft_threshold", 0.5)
        .with("lane_budget", false)
}

fn joint(bound: f64) -> CommitConfig {
    commit("joint_bound").with("entropy_threshold", bound)
}

/// Offset, text, probability, entropy.
type Said = (u32, &'static str, f64, f32);

/// A step in which every offset that is not named proposes "a" with probability 0.1 and 3 nats.
fn step(bench: &mut Bench, said: &[Said]) -> Vec<Effect> {
    bench.step_by(|offset| {
        let found = said.iter().find(|(place, ..)| *place == offset);
        let (_, text, probability, entropy) = *found.unwrap_or(&(0, "a", 0.1, 3.0));
        Candidate { entropy, ..candidate(id(text), probability) }
    })
}

/// 0.1 + 0.2 + 0.3 is within the bound; the fourth mask, a draft, is the last that fits.
#[test]
fn drafts_pay_into_the_bound() {
    let mut bench = bench(joint(0.61), short());
    let said = [
        (0, "a", 0.9, 0.1),
        (1, "c", 0.6, 0.5),
        (2, "7", 0.9, 0.2),
        (4, " b", 0.9, 0.3),
        (5, "c", 0.9, 0.4),
    ];
    let expected = [
        masked(0, "a", 0.9),
        masked(2, "7", 0.9),
        draft(4, " b", 0.9),
        draft(5, "c", 0.9),
        advance(0, 1),
    ];
    assert_eq!(step(&mut bench, &said), expected);
}

/// A draft still needs its threshold, and is no stop token; the lane goes on alone.
#[test]
fn what_may_not_be_a_draft_pays_nothing() {
    let mut bench = bench(joint(0.0), short());
    let said = [(1, "c", 0.2, 0.5), (4, " b", 0.49, 0.0), (5, "<eos>", 0.9, 0.0)];
    assert_eq!(step(&mut bench, &said), [masked(1, "c", 0.2)]);
}

/// The refine lane [0, 2) and the generate lane [2, 6) share a bound that only the latter uses.
#[test]
fn a_lane_waits_while_others_are_more_certain() {
    let mut bench = bench(joint(0.3), short());
    let forked = [
        masked(1, ".", 0.9),
        fork(0, 2),
        refine(1, 0, 0..2, Birth::Active),
        generate(2, Some(0), 2..6, Birth::Active),
    ];
    assert_eq!(step(&mut bench, &[(1, ".", 0.9, 0.5)]), forked);
    let said = [(0, "c", 0.9, 0.4), (2, "7", 0.9, 0.1), (6, "a", 0.6, 0.15)];
    let both = [masked(2, "7", 0.9), draft(6, "a", 0.6)];
    // 0.1 + 0.15 leaves room for a third mask, whose own entropy does not count.
    let mut expected = vec![masked(0, "c", 0.9)];
    expected.extend(both);
    expected.extend([finish(1, 2), advance(0, 3)]);
    assert_eq!(step(&mut bench, &said), expected);
    let mut tight = self::bench(joint(0.2), short());
    step(&mut tight, &[(1, ".", 0.9, 0.5)]);
    assert_eq!(step(&mut tight, &said), both);
}

/// The masks that stay in the sentence have 0.4 and 0.5 nats.
#[test]
fn a_fork_leaves_little_entropy_behind() {
    let said = [(2, ".", 0.9, 0.1), (0, "a", 0.5, 0.4), (1, "a", 0.5, 0.5)];
    let forks = |most: f64| {
        let mut bench = bench(joint(0.0), short().with("fork_entropy", most));
        step(&mut bench, &said).contains(&fork(0, 3))
    };
    assert!(forks(0.91));
    assert!(!forks(0.89));
    // Nothing is left in a full sentence, whatever its tokens had.
    let mut full = bench(joint(9.0), short().with("fork_entropy", 0.0));
    assert!(step(&mut full, &said).contains(&fork(0, 3)));
}

/// The guesses lie in a lane and in its lookahead, and climb together.
#[test]
fn nested_drafts_guess_in_all_lanes_and_ahead_of_them() {
    let rule = commit("nested_drafts")
        .with("entropy_threshold", 0.2)
        .with("draft_levels", 2u32)
        .with("draft_floor", 0.6);
    let said = [
        (0, "a", 0.9, 0.15),
        (1, "c", 0.9, 0.1),
        (2, "7", 0.96, 0.12),
        (3, "<eos>", 0.99, 0.2),
        (4, " b", 0.7, 0.11),
    ];
    let mut right = bench(rule.clone(), short());
    assert_eq!(step(&mut right, &said), [masked(1, "c", 0.9), draft(4, " b", 0.7)]);
    // Level 1 guesses offset 2, level 2 offset 0 as well; the stop token is not guessed.
    let guesses = right.decoder.branches();
    let offsets: Vec<u32> =
        guesses.proposals.iter().map(|proposal| proposal.offset.get()).collect();
    assert_eq!((offsets, guesses.ends), (vec![2, 0], &[1, 2][..]));
    // 0.12 <= 0.2 sanctions both at once; the rest follows on their canvas.
    let effects = step(&mut right, &said);
    assert_eq!(effects[..3], [masked(2, "7", 0.96), masked(0, "a", 0.9), masked(3, "<eos>", 0.99)]);
    // Another token at offset 2: the choice of the real canvas stands alone.
    let mut wrong = bench(rule, short());
    step(&mut wrong, &said);
    let mut others = said;
    others[2].1 = "a";
    assert_eq!(
        step(&mut wrong, &others),
        [masked(0, "a", 0.9), masked(2, "a", 0.96), advance(0, 3)]
    );
}
