//! Births and deaths of lanes: forks early and late, drafts, coupling, limits.

use asynclane_decode::{Birth, Effect, LaneId, Role};

use crate::common::{
    Bench, advance, asynclane, at, draft, finish, fork, generate, masked, refine, span, wake,
};

/// Proposes "a" with probability 1 at every offset of a range.
fn sure(range: core::ops::Range<u32>) -> Vec<(u32, &'static str, f64)> {
    range.map(|offset| (offset, "a", 1.0)).collect()
}

#[test]
fn a_fork_gives_a_refine_lane_and_a_continuation_of_full_length() {
    let mut bench = Bench::from(asynclane());
    let effects = bench.step(&[(0, "a", 1.0), (3, ".", 1.0), (5, "c", 1.0)]);
    let expected = [
        masked(0, "a", 1.0),
        masked(3, ".", 1.0),
        masked(5, "c", 1.0),
        fork(0, 4),
        refine(1, 0, 0..4, Birth::Active),
        generate(2, Some(0), 4..12, Birth::Active),
        advance(0, 1),
    ];
    assert_eq!(effects, expected);
    // Both lanes commit in the same step, the refine lane first.
    let effects = bench.step(&[(2, "c", 0.5), (7, "7", 0.4)]);
    assert_eq!(effects, [masked(2, "c", 0.5), masked(7, "7", 0.4)]);
    let effects = bench.step(&[(1, "a", 0.5), (4, "c", 0.4)]);
    let expected = [masked(1, "a", 0.5), masked(4, "c", 0.4), finish(1, 4), advance(1, 6)];
    assert_eq!(effects, expected);
}

#[test]
fn min_fill_counts_the_filled_share_of_the_lane() {
    let mut bench = Bench::from(asynclane().with("min_fill", 0.5));
    assert_eq!(bench.step(&[(1, ".", 1.0), (2, "a", 1.0), (3, "a", 1.0)]).len(), 3);
    let effects = bench.step(&[(4, "a", 1.0)]);
    assert_eq!(effects[1], fork(0, 2), "4 of 8 are filled");
}

#[test]
fn min_clock_counts_the_steps_of_the_lane() {
    let mut bench = Bench::from(asynclane().with("min_clock", 2u32));
    assert_eq!(bench.step(&[(1, ".", 1.0)]), [masked(1, ".", 1.0)]);
    assert_eq!(bench.step(&[(2, "a", 1.0)])[1], fork(0, 2));
    // The continuation has a clock of its own.
    assert_eq!(bench.step(&[(4, ".", 1.0)])[1..2], [masked(4, ".", 1.0)]);
    assert!(bench.step(&[(5, "a", 1.0)]).contains(&fork(2, 3)));
}

#[test]
fn a_full_lane_forks_at_its_delimiter_too() {
    let mut bench = Bench::from(asynclane());
    let mut said = sure(0..8);
    said[4].1 = ".";
    let expected = [
        fork(0, 5),
        refine(1, 0, 0..5, Birth::Finished),
        generate(2, Some(0), 5..13, Birth::Active),
        advance(0, 8),
    ];
    assert_eq!(bench.step(&said)[8..], expected);
}

#[test]
fn or_it_spawns_at_its_end() {
    let mut bench = Bench::from(asynclane().with("fork_when_complete", false));
    let mut said = sure(0..8);
    said[4].1 = ".";
    let expected = [finish(0, 8), generate(1, Some(0), 8..16, Birth::Active), advance(0, 8)];
    assert_eq!(bench.step(&said)[8..], expected);
}

#[test]
fn drafts_need_their_threshold_and_no_stop_token() {
    let config = asynclane().with("lookahead", 4u32).with("draft_threshold", 0.8);
    let mut bench = Bench::from(config);
    let effects = bench.step(&[
        (0, "a", 1.0),
        (8, "c", 0.8),
        (9, "7", 0.79),
        (10, "<eos>", 1.0),
        (11, " b", 0.85),
    ]);
    let expected = [masked(0, "a", 1.0), draft(8, "c", 0.8), draft(11, " b", 0.85), advance(0, 1)];
    assert_eq!(effects, expected);
}

#[test]
fn without_drafts_the_lookahead_is_context_only() {
    let mut bench = Bench::from(asynclane().with("lookahead", 4u32));
    let view = bench.decoder.lanes().next().expect("the root is active");
    assert_eq!((view.range, view.lookahead, view.drafts), (span(0..8), span(8..12), false));
    assert_eq!(bench.step(&[(0, "a", 1.0)]), [masked(0, "a", 1.0), advance(0, 1)]);
}

/// A filled lane costs no forward: its successor starts in the same step.
#[test]
fn a_draft_that_fills_a_whole_successor() {
    let config = asynclane()
        .with("block_length", 4u32)
        .with("lookahead", 6u32)
        .with("draft_threshold", 0.9)
        .with("fork", "off");
    let mut bench = Bench::from(config);
    let effects = bench.step(&sure(0..10));
    let expected = [
        finish(0, 4),
        generate(1, Some(0), 4..8, Birth::Finished),
        generate(2, Some(1), 8..12, Birth::Active),
        advance(0, 10),
    ];
    assert_eq!(effects[10..], expected);
}

#[test]
fn a_coupled_continuation_waits_for_its_refine_lane() {
    let mut bench = Bench::from(asynclane().with("coupled", true));
    let effects = bench.step(&[(1, "a", 1.0), (3, ".", 1.0)]);
    let expected = [
        fork(0, 4),
        refine(1, 0, 0..4, Birth::Active),
        generate(2, Some(0), 4..12, Birth::Waiting),
    ];
    assert_eq!(effects[2..], expected);
    assert_eq!(active(&bench), [(1, Role::Refine)]);
    assert_eq!(bench.step(&[(0, "c", 0.5)]), [masked(0, "c", 0.5), advance(0, 2)]);
    let expected = [masked(2, "c", 0.5), finish(1, 4), wake(2), advance(2, 4)];
    assert_eq!(bench.step(&[(2, "c", 0.5)]), expected);
    assert_eq!(active(&bench), [(2, Role::Generate)]);
    assert_eq!(bench.decoder.tree().get(LaneId(2)).clock, 0);
}

#[test]
fn a_coupled_continuation_does_not_wait_for_a_finished_refine_lane() {
    let mut bench = Bench::from(asynclane().with("coupled", true));
    let effects = bench.step(&[(0, "a", 1.0), (1, ".", 1.0)]);
    let expected = [
        fork(0, 2),
        refine(1, 0, 0..2, Birth::Finished),
        generate(2, Some(0), 2..10, Birth::Active),
        advance(0, 2),
    ];
    assert_eq!(effects[2..], expected);
}

/// A waiting lane that drafts have filled finishes in the step that wakes it, unless it forks.
#[test]
fn a_coupled_continuation_may_be_full_when_it_wakes() {
    let config = asynclane()
        .with("block_length", 4u32)
        .with("lookahead", 4u32)
        .with("draft_threshold", 0.9)
        .with("coupled", true);
    let mut bench = Bench::from(config);
    let mut said = sure(0..8);
    said.remove(1);
    said[2].1 = ".";
    assert_eq!(bench.step(&said)[8], refine(1, 0, 0..4, Birth::Active));
    let expected = [
        masked(1, "c", 0.5),
        finish(1, 4),
        wake(2),
        finish(2, 4),
        generate(3, Some(2), 8..12, Birth::Active),
        advance(1, 8),
    ];
    assert_eq!(bench.step(&[(1, "c", 0.5)]), expected);
}

#[test]
fn a_fork_beyond_max_lanes_waits_for_room() {
    let mut bench = Bench::from(asynclane().with("max_lanes", 2u32));
    assert!(bench.step(&[(1, ".", 1.0), (2, "a", 1.0)]).contains(&fork(0, 2)));
    // Lane 2 has a delimiter as well, but two lanes are active already.
    let effects = bench.step(&[(0, "a", 1.0), (5, ".", 1.0)]);
    let expected = [
        masked(0, "a", 1.0),
        masked(5, ".", 1.0),
        finish(1, 2),
        fork(2, 4),
        refine(3, 2, 2..6, Birth::Active),
        generate(4, Some(2), 6..14, Birth::Active),
        advance(0, 3),
    ];
    assert_eq!(effects, expected, "lane 1 made room in the same step");
    let effects = bench.step(&[(8, ".", 1.0)]);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Fork { .. })));
    assert_eq!(active(&bench).len(), 2);
}

/// A refine child that starts finished does not count as active.
#[test]
fn with_one_lane_only_settled_prefixes_fork() {
    let mut bench = Bench::from(asynclane().with("max_lanes", 1u32));
    assert_eq!(bench.step(&[(1, ".", 1.0)]), [masked(1, ".", 1.0)]);
    let effects = bench.step(&[(0, "a", 1.0)]);
    let expected = [
        masked(0, "a", 1.0),
        fork(0, 2),
        refine(1, 0, 0..2, Birth::Finished),
        generate(2, Some(0), 2..10, Birth::Active),
        advance(0, 2),
    ];
    assert_eq!(effects, expected);
}

/// eq. 12: L_eff is the end of the furthest active lane's valid tokens.
#[test]
fn effective_length_is_the_furthest_valid_token() {
    let mut bench = Bench::from(asynclane());
    assert_eq!(bench.decoder.effective_end(), at(0));
    bench.step(&[(0, "a", 1.0), (1, "a", 1.0), (5, "c", 1.0)]);
    assert_eq!(bench.decoder.effective_end(), at(2));
    bench.step(&[(3, ".", 1.0)]);
    // Lane 2 is [4, 12) and begins with a mask.
    assert_eq!(bench.decoder.effective_end(), at(4));
    bench.step(&[(2, "c", 0.3), (4, "a", 1.0)]);
    assert_eq!(bench.decoder.effective_end(), at(6));
}

#[test]
fn effective_length_counts_a_waiting_lane() {
    let mut bench = Bench::from(asynclane().with("coupled", true));
    bench.step(&[(1, "a", 1.0), (3, ".", 1.0), (4, "c", 1.0), (5, "c", 1.0)]);
    assert_eq!(active(&bench), [(1, Role::Refine)]);
    assert_eq!(bench.decoder.effective_end(), at(6), "of the waiting lane [4, 12)");
}

fn active(bench: &Bench) -> Vec<(u32, Role)> {
    bench.decoder.lanes().map(|lane| (lane.id.0, lane.role)).collect()
}
