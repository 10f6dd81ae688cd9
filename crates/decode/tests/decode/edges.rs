//! The edge cases of AsyncLane §8 that live in `decode`, with their exact effects.

use asynclane_decode::{Birth, DoneReason, ScheduleConfig};

use crate::common::{
    Bench, advance, asynclane, at, block_wise, done, draft, finish, fork, generate, masked, refine,
    shorten, span, with_schedule,
};

fn bench(schedule: ScheduleConfig, budget: u32) -> Bench {
    Bench::new(&with_schedule(schedule), budget)
}

#[test]
fn budget_zero_is_done_at_birth() {
    for bench in [bench(asynclane(), 0), Bench::new(&block_wise(4), 0)] {
        assert_eq!(bench.born, [done(DoneReason::Budget)]);
        assert!(bench.decoder.is_done());
        assert_eq!(bench.decoder.lanes().count(), 0);
    }
}

#[test]
fn budget_one() {
    for mut bench in [bench(asynclane(), 1), Bench::new(&block_wise(4), 1)] {
        assert_eq!(bench.born, [generate(0, None, 0..1, Birth::Active)]);
        let effects = bench.step(&[(0, "a", 0.4)]);
        let expected = [masked(0, "a", 0.4), finish(0, 1), advance(0, 1), done(DoneReason::Budget)];
        assert_eq!(effects, expected);
    }
}

#[test]
fn a_budget_below_the_block_length_shortens_the_block() {
    for mut bench in [bench(asynclane(), 3), Bench::new(&block_wise(8), 3)] {
        assert_eq!(bench.born, [generate(0, None, 0..3, Birth::Active)]);
        let effects = bench.step(&[(0, "a", 1.0), (1, "a", 1.0), (2, "c", 1.0)]);
        assert_eq!(effects[3..], [finish(0, 3), advance(0, 3), done(DoneReason::Budget)]);
    }
}

#[test]
fn a_budget_that_is_no_multiple_of_the_block_length_shortens_the_last_block() {
    let config = asynclane().with("block_length", 4u32);
    for mut bench in [bench(config, 6), Bench::new(&block_wise(4), 6)] {
        let full = [(0, "a", 1.0), (1, "a", 1.0), (2, "a", 1.0), (3, "a", 1.0)];
        let expected = [finish(0, 4), generate(1, Some(0), 4..6, Birth::Active), advance(0, 4)];
        assert_eq!(bench.step(&full)[4..], expected);
        let expected = [
            masked(4, "a", 1.0),
            masked(5, "c", 1.0),
            finish(1, 2),
            advance(4, 6),
            done(DoneReason::Budget),
        ];
        assert_eq!(bench.step(&[(4, "a", 1.0), (5, "c", 1.0)]), expected);
    }
}

/// The answer is empty, its reason is `stop`.
#[test]
fn the_first_token_is_a_stop_token() {
    let mut bench = bench(asynclane(), 24);
    let effects = bench.step(&[(0, "<eos>", 0.95)]);
    let expected =
        [masked(0, "<eos>", 0.95), shorten(1), finish(0, 0), done(DoneReason::StopToken)];
    assert_eq!(effects, expected);
    assert_eq!(bench.decoder.canvas().emitted(), at(0));
}

#[test]
fn without_pruning_a_stop_token_ends_the_sequence_all_the_same() {
    let mut config = block_wise(4);
    config.prune = false;
    let mut bench = Bench::new(&config, 8);
    let effects = bench.step(&[(0, "a", 0.95), (1, "<eot>", 0.95)]);
    let expected = [
        masked(0, "a", 0.95),
        masked(1, "<eot>", 0.95),
        advance(0, 1),
        done(DoneReason::StopToken),
    ];
    assert_eq!(effects, expected);
    assert_eq!(bench.decoder.lanes().count(), 0, "the block is dropped with its masks");
}

/// The published form of the block-wise samplers.
#[test]
fn without_early_stop_the_whole_canvas_is_filled() {
    let mut config = block_wise(2);
    (config.prune, config.early_stop) = (false, false);
    let mut bench = Bench::new(&config, 4);
    let effects = bench.step(&[(0, "a", 1.0), (1, "<eos>", 1.0)]);
    assert_eq!(
        effects[2..],
        [finish(0, 2), generate(1, Some(0), 2..4, Birth::Active), advance(0, 1),]
    );
    let effects = bench.step(&[(2, "a", 1.0), (3, "a", 1.0)]);
    assert_eq!(effects[2..], [finish(1, 2), done(DoneReason::StopToken)]);
}

#[test]
fn a_stop_token_inside_a_fork_candidate_ends_the_scan() {
    let mut bench = bench(asynclane(), 24);
    let effects = bench.step(&[(1, ".", 1.0), (3, "<eos>", 1.0), (5, ".", 1.0)]);
    let expected = [
        masked(1, ".", 1.0),
        masked(3, "<eos>", 1.0),
        masked(5, ".", 1.0),
        shorten(4),
        fork(0, 2),
        refine(1, 0, 0..2, Birth::Active),
        generate(2, Some(0), 2..4, Birth::Active),
    ];
    assert_eq!(effects, expected);
}

/// The continuation of a fork right before a stop token is empty.
#[test]
fn a_fork_right_before_a_stop_token() {
    let mut bench = bench(asynclane(), 24);
    let effects = bench.step(&[(1, ".", 1.0), (2, "<eos>", 1.0)]);
    let expected = [
        masked(1, ".", 1.0),
        masked(2, "<eos>", 1.0),
        shorten(3),
        fork(0, 2),
        refine(1, 0, 0..2, Birth::Active),
        generate(2, Some(0), 2..2, Birth::Finished),
    ];
    assert_eq!(effects, expected);
    let expected = [masked(0, "c", 0.3), finish(1, 2), advance(0, 2), done(DoneReason::StopToken)];
    assert_eq!(bench.step(&[(0, "c", 0.3)]), expected);
}

#[test]
fn a_delimiter_at_the_last_position_of_the_budget_leaves_no_generate_child() {
    let mut bench = bench(asynclane(), 4);
    let effects = bench.step(&[(1, "a", 1.0), (3, ".", 1.0)]);
    let expected =
        [masked(1, "a", 1.0), masked(3, ".", 1.0), fork(0, 4), refine(1, 0, 0..4, Birth::Active)];
    assert_eq!(effects, expected);
    let effects = bench.step(&[(0, "a", 1.0), (2, "c", 1.0)]);
    assert_eq!(effects[2..], [finish(1, 4), advance(0, 4), done(DoneReason::Budget)]);
}

/// The masks left of the stop token are refined; nothing right of it is computed.
#[test]
fn a_stop_token_with_masks_before_it_keeps_refining() {
    let config = asynclane().with("lookahead", 4u32).with("draft_threshold", 0.9);
    let mut bench = bench(config, 24);
    let effects = bench.step(&[(0, "a", 1.0), (4, "<eos>", 1.0), (6, "c", 1.0), (9, "c", 1.0)]);
    let expected = [
        masked(0, "a", 1.0),
        masked(4, "<eos>", 1.0),
        masked(6, "c", 1.0),
        draft(9, "c", 1.0),
        shorten(5),
        advance(0, 1),
    ];
    assert_eq!(effects, expected);
    let views: Vec<_> = bench.decoder.lanes().collect();
    assert_eq!((views.len(), views[0].range), (1, span(0..5)));
    assert!(views[0].lookahead.is_empty());
    assert_eq!(bench.step(&[(2, "c", 0.5)]), [masked(2, "c", 0.5)]);
    let effects = bench.step(&[(1, "a", 1.0), (3, "a", 1.0)]);
    assert_eq!(effects[2..], [finish(0, 4), advance(1, 4), done(DoneReason::StopToken)]);
    assert_eq!(bench.canvas(), "aaca<eos>");
}

#[test]
fn a_later_stop_token_further_left_cuts_the_canvas_again() {
    let mut bench = bench(asynclane(), 24);
    let effects = bench.step(&[(5, "<eos>", 1.0)]);
    assert_eq!(effects, [masked(5, "<eos>", 1.0), shorten(6)]);
    let effects = bench.step(&[(2, "<eot>", 1.0), (3, "<eos>", 1.0)]);
    let expected = [masked(2, "<eot>", 1.0), masked(3, "<eos>", 1.0), shorten(3)];
    assert_eq!(effects, expected);
    let effects = bench.step(&[(0, "a", 1.0), (1, "c", 1.0)]);
    assert_eq!(effects[2..], [finish(0, 2), advance(0, 2), done(DoneReason::StopToken)]);
}

#[test]
fn a_stop_token_at_the_last_position_cuts_nothing() {
    let mut bench = bench(asynclane(), 2);
    let effects = bench.step(&[(0, "a", 1.0), (1, "<eos>", 1.0)]);
    let expected = [
        masked(0, "a", 1.0),
        masked(1, "<eos>", 1.0),
        finish(0, 1),
        advance(0, 1),
        done(DoneReason::StopToken),
    ];
    assert_eq!(effects, expected);
}

/// t = budget: a lane has at most as many steps as it has offsets left; a successor takes over
/// at its first mask.
#[test]
fn a_lane_on_a_cut_canvas_runs_no_more_steps_than_it_has_offsets() {
    let mut bench = bench(asynclane().with("block_length", 4u32), 4);
    assert_eq!(bench.step(&[(0, "a", 1.0)])[0], masked(0, "a", 1.0));
    assert_eq!(bench.step(&[(3, "c", 0.5)]), [masked(3, "c", 0.5)]);
    let expected = [
        masked(2, "<eos>", 1.0),
        shorten(3),
        finish(0, 1),
        generate(1, Some(0), 1..3, Birth::Active),
    ];
    assert_eq!(bench.step(&[(2, "<eos>", 1.0)]), expected);
    let expected = [masked(1, "c", 0.2), finish(1, 1), advance(1, 2), done(DoneReason::StopToken)];
    assert_eq!(bench.step(&[(1, "c", 0.2)]), expected);
}

/// Without a settled offset there is no successor (§1, v = 0): the output ends there.
#[test]
fn a_lane_that_runs_out_of_steps_before_its_first_offset_ends_the_sequence() {
    let mut bench = bench(asynclane().with("block_length", 4u32), 4);
    assert_eq!(bench.step(&[(3, "c", 0.5)]), [masked(3, "c", 0.5)]);
    let expected =
        [masked(1, "<eos>", 0.5), shorten(2), finish(0, 0), done(DoneReason::LaneBudget)];
    assert_eq!(bench.step(&[(1, "<eos>", 0.5)]), expected);
    assert_eq!(bench.decoder.canvas().emitted(), at(0));
}

/// The same lane without a budget: it settles what is open before the stop token.
#[test]
fn without_a_lane_budget_a_lane_on_a_cut_canvas_goes_on() {
    let mut bench = bench(asynclane().with("block_length", 4u32).with("lane_budget", false), 4);
    assert_eq!(bench.step(&[(3, "c", 0.5)]), [masked(3, "c", 0.5)]);
    let expected = [masked(1, "<eos>", 0.5), shorten(2)];
    assert_eq!(bench.step(&[(1, "<eos>", 0.5)]), expected);
    let expected = [masked(0, "c", 0.2), finish(0, 1), advance(0, 1), done(DoneReason::StopToken)];
    assert_eq!(bench.step(&[(0, "c", 0.2)]), expected);
}

/// The end is found before its sentence, and then an even earlier one: the generate lane is complete, for
/// no mask is left before its first stop token, and only the refine lane goes on.
#[test]
fn a_refine_lane_goes_on_after_generation_has_ended() {
    let config = asynclane()
        .with("lookahead", 4u32)
        .with("draft_threshold", 0.9)
        .with("min_fill", 0.25)
        .with("min_clock", 1u32);
    let mut bench = bench(config, 24);
    // The scan for a delimiter ends at the stop token, and the draft falls behind it.
    let effects = bench.step(&[
        (1, "a", 0.95),
        (3, ".", 0.97),
        (6, "<eos>", 0.99),
        (7, ".", 0.95),
        (8, ".", 0.99),
    ]);
    let expected = [
        draft(8, ".", 0.99),
        shorten(7),
        fork(0, 4),
        refine(1, 0, 0..4, Birth::Active),
        generate(2, Some(0), 4..7, Birth::Active),
    ];
    assert_eq!(effects[4..], expected);
    let expected =
        [masked(0, "c", 0.6), masked(4, "<eos>", 0.99), shorten(5), finish(2, 0), advance(0, 2)];
    assert_eq!(bench.step(&[(0, "c", 0.6), (4, "<eos>", 0.99)]), expected);
    let expected = [masked(2, "c", 0.3), finish(1, 4), advance(2, 4), done(DoneReason::StopToken)];
    assert_eq!(bench.step(&[(2, "c", 0.3)]), expected);
    assert_eq!(bench.canvas(), "cac.<eos>");
}
