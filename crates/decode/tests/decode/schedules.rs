//! The schedules of one lane, step by step, with the exact effects.

use asynclane_decode::{Birth, DecoderConfig, Input};

use crate::common::{
    Bench, STOPS, advance, block_wise, commit, finish, generate, masked, resize, schedule, shorten,
    span, with_schedule,
};

fn adaptive(budget: u32, delimiters: &'static str) -> Bench {
    let schedule = schedule("adaptive_block")
        .with("block_length", 3u32)
        .with("delimiters", delimiters)
        .with("delimiter_threshold", 0.5);
    Bench::new(&with_schedule(schedule), budget)
}

/// A quarter of a budget of 32: the first forward of a block looks at eight offsets.
#[test]
fn an_adaptive_block_ends_at_the_surest_delimiter() {
    let mut bench = adaptive(32, "sentence");
    assert_eq!(bench.born, [generate(0, None, 0..8, Birth::Active)]);
    let said = [(2, ".", 0.6), (4, "\n", 0.7), (6, ".", 0.7), (7, "a", 0.95)];
    // On a tie the left one; the confident token right of it is not committed.
    let expected = [resize(0, 5), masked(4, "\n", 0.7)];
    assert_eq!(bench.step(&said), expected);
    let said = [(0, "a", 0.95), (1, "a", 0.95), (2, "a", 0.95), (3, "a", 0.95)];
    let effects = bench.step(&said);
    let expected = [finish(0, 5), generate(1, Some(0), 5..13, Birth::Active), advance(0, 5)];
    assert_eq!(effects[4..], expected);
    // No delimiter that is sure enough: the default length.
    let effects = bench.step(&[(5, "a", 0.95), (9, ".", 0.49)]);
    assert_eq!(effects[..2], [resize(1, 3), masked(5, "a", 0.95)]);
}

/// AdaBlock's delimiter is the token that is a line feed; a full stop or two line feeds end nothing.
#[test]
fn by_default_an_adaptive_block_ends_at_a_line_feed() {
    let mut bench = adaptive(32, "newline");
    let said = [(2, ".", 0.9), (4, "\n\n", 0.8), (5, ".\n", 0.7), (6, "\n", 0.6)];
    assert_eq!(bench.step(&said)[..1], [resize(0, 7)]);
    let mut bench = adaptive(32, "newline");
    assert_eq!(bench.step(&said[..3])[..1], [resize(0, 3)]);
}

#[test]
fn an_adaptive_block_never_outgrows_the_budget() {
    let mut bench = adaptive(4, "sentence");
    assert_eq!(bench.born, [generate(0, None, 0..3, Birth::Active)]);
    // The window has one offset; a delimiter there makes a block of one.
    let expected = [
        resize(0, 1),
        masked(0, ".", 0.6),
        finish(0, 1),
        generate(1, Some(0), 1..4, Birth::Active),
        advance(0, 1),
    ];
    assert_eq!(bench.step(&[(0, ".", 0.6)]), expected);
}

fn multi(add_threshold: f64) -> Bench {
    let schedule = schedule("multi_block")
        .with("block_length", 4u32)
        .with("add_block_threshold", add_threshold);
    Bench::new(&with_schedule(schedule), 16)
}

/// Blocks of four: the second opens at two filled offsets of the first.
#[test]
fn a_block_opens_before_the_last_one_is_full() {
    let mut bench = multi(0.5);
    assert_eq!(bench.born, [generate(0, None, 0..4, Birth::Active)]);
    let effects = bench.step(&[(0, "a", 0.95)]);
    assert_eq!(effects, [masked(0, "a", 0.95), advance(0, 1)]);
    let effects = bench.step(&[(3, "a", 0.95)]);
    assert_eq!(effects, [masked(3, "a", 0.95), resize(0, 8)]);
    // The first open block has a commit in every step, even if others are more confident.
    let effects = bench.step(&[(1, "c", 0.3), (6, "a", 0.95), (7, "a", 0.95)]);
    let expected = [
        masked(1, "c", 0.3),
        masked(6, "a", 0.95),
        masked(7, "a", 0.95),
        resize(0, 12),
        advance(1, 2),
    ];
    assert_eq!(effects, expected);
    // A full block leaves; the lane continues with the open ones.
    let effects = bench.step(&[(2, "a", 0.95)]);
    let expected = [
        masked(2, "a", 0.95),
        finish(0, 4),
        generate(1, Some(0), 4..12, Birth::Active),
        advance(2, 4),
    ];
    assert_eq!(effects, expected);
}

/// D2F: blocks of four, the next one opens at a quarter and is active at three quarters. A block that is
/// not active commits what the rule chooses and nothing else, and one block opens in a step.
#[test]
fn every_active_block_has_a_commit_and_no_other() {
    let schedule = schedule("multi_block")
        .with("block_length", 4u32)
        .with("add_block_threshold", 0.25)
        .with("active_block_threshold", 0.75);
    let mut bench = Bench::new(&with_schedule(schedule), 16);
    let effects = bench.step(&[(0, "a", 0.95), (1, "a", 0.95)]);
    let expected = [masked(0, "a", 0.95), masked(1, "a", 0.95), resize(0, 8), advance(0, 2)];
    assert_eq!(effects, expected);
    // Half of the first block is filled: the second commits nothing, although it is surer.
    let effects = bench.step(&[(2, "c", 0.3), (5, "a", 0.8)]);
    assert_eq!(effects, [masked(2, "c", 0.3), advance(2, 3)]);
    // Three quarters: one mask of each. The second reaches a quarter and the third opens.
    let effects = bench.step(&[(3, "c", 0.2), (5, "a", 0.8), (6, "a", 0.7)]);
    let expected = [
        masked(3, "c", 0.2),
        masked(5, "a", 0.8),
        finish(0, 4),
        generate(1, Some(0), 4..8, Birth::Active),
        resize(1, 8),
        advance(3, 4),
    ];
    assert_eq!(effects, expected);
}

/// On weights whose blocks are counted from the prompt's first token, the first block is what is left of
/// the prompt's last one.
#[test]
fn open_blocks_lie_in_the_models_blocks() {
    let config = with_schedule(
        schedule("multi_block").with("block_length", 4u32).with("add_block_threshold", 0.0),
    );
    let mut bench = Bench::in_phase(&config, 10, 3);
    assert_eq!(bench.born, [generate(0, None, 0..1, Birth::Active)]);
    let effects = bench.step(&[(0, "a", 0.95)]);
    let expected = [
        masked(0, "a", 0.95),
        finish(0, 1),
        generate(1, Some(0), 1..5, Birth::Active),
        advance(0, 1),
    ];
    assert_eq!(effects, expected);
    bench.step(&[(2, "a", 0.95)]);
    let mut lanes = bench.decoder.lanes();
    assert_eq!(lanes.next().map(|lane| lane.range), Some(span(1..9)));
}

#[test]
fn a_stop_token_cuts_open_blocks() {
    let mut bench = multi(0.0);
    bench.step(&[(0, "a", 0.95)]);
    let effects = bench.step(&[(1, "a", 0.95), (5, "<eos>", 0.95)]);
    let expected = [masked(1, "a", 0.95), masked(5, "<eos>", 0.95), shorten(6), advance(1, 2)];
    assert_eq!(effects, expected);
    let mut lanes = bench.decoder.lanes();
    assert_eq!(lanes.next().map(|lane| lane.range), Some(span(0..6)));
    assert_eq!(lanes.next(), None);
}

/// Two active masks, four seen, three steps a cycle.
#[test]
fn a_window_slides_with_its_masks() {
    let schedule =
        schedule("window").with("block_length", 2u32).with("window", 4u32).with("refresh", 2u32);
    let config = DecoderConfig { commit: commit("top_k"), ..with_schedule(schedule) };
    let mut bench = Bench::new(&config, 12);
    let seen = |bench: &Bench| {
        let lane = bench.decoder.lanes().next().expect("a lane");
        (lane.range, lane.lookahead)
    };
    // The first step of a cycle may commit anywhere.
    assert_eq!(seen(&bench), (span(0..12), span(12..12)));
    let effects = bench.step(&[(1, "c", 0.2), (9, "a", 0.3)]);
    assert_eq!(effects, [masked(9, "a", 0.3), resize(0, 2)]);
    assert_eq!(seen(&bench), (span(0..2), span(2..4)));
    // Offset 1 is filled: the two first masks are 0 and 2. What is seen stays.
    let effects = bench.step(&[(0, "a", 0.2), (1, "c", 0.3)]);
    assert_eq!(effects, [masked(1, "c", 0.3), resize(0, 3)]);
    assert_eq!(seen(&bench), (span(0..3), span(3..4)));
    // The third step ends the cycle; the next begins at the frontier.
    let effects = bench.step(&[(0, "a", 0.5), (2, "c", 0.3)]);
    let expected = [
        masked(0, "a", 0.5),
        finish(0, 2),
        generate(1, Some(0), 2..12, Birth::Active),
        advance(0, 2),
    ];
    assert_eq!(effects, expected);
    assert_eq!(seen(&bench), (span(2..12), span(12..12)));
}

/// A forward renews the K/V of the tokens that the window's cycle has committed; the commit of the cycle's
/// first step is renewed once.
#[test]
fn a_window_renews_what_its_cycle_commits() {
    let schedule =
        schedule("window").with("block_length", 2u32).with("window", 4u32).with("refresh", 3u32);
    let mut bench = Bench::new(&with_schedule(schedule), 12);
    let renewed_from = |bench: &Bench| bench.decoder.lanes().next().map(|lane| lane.renewed_from);
    let mut seen = Vec::new();
    for _ in 0..7 {
        bench.step(&[]);
        seen.push(renewed_from(&bench));
    }
    // A lane starts after steps 4 and 8; its first forward renews everything.
    assert_eq!(seen, [1, 2, 2, 5, 5, 6, 6].map(Some));
    let other = Bench::new(&block_wise(4), 8);
    assert_eq!(renewed_from(&other), Some(0));
}

/// WeDLM §3: the window ends four offsets after the frontier, whatever is filled in it.
#[test]
fn a_streaming_window_moves_with_the_frontier() {
    let config = with_schedule(schedule("streaming").with("window", 4u32));
    let mut bench = Bench::new(&config, 7);
    let range = |bench: &Bench| bench.decoder.lanes().next().map(|lane| lane.range);
    assert_eq!(range(&bench), Some(span(0..4)));
    let effects = bench.step(&[(1, "a", 0.95)]);
    assert_eq!(effects, [masked(1, "a", 0.95)]);
    let effects = bench.step(&[(0, "a", 0.95)]);
    assert_eq!(effects, [masked(0, "a", 0.95), resize(0, 6), advance(0, 2)]);
    let effects = bench.step(&[(2, "a", 0.95), (3, "a", 0.95), (4, "a", 0.95)]);
    assert_eq!(effects.last(), Some(&advance(2, 5)));
    assert_eq!(range(&bench), Some(span(0..7)));
}

/// Fast-dLLM v2: model blocks of eight, sub-blocks of four, a prompt of six.
#[test]
fn the_first_position_of_a_model_block_is_a_lane_of_its_own() {
    let config = block_wise(4);
    let input = Input { phase: 6, lead: Some(8), ..Input::new(16, STOPS) };
    let mut bench = Bench::born(&config, input);
    let range = |bench: &Bench| bench.decoder.lanes().next().map(|lane| lane.range);
    let mut seen = Vec::new();
    while let Some(range) = range(&bench) {
        let said: Vec<_> = range.iter().map(|offset| (offset.get(), "a", 0.95)).collect();
        seen.push(range.start.get()..range.end.get());
        bench.step(&said);
    }
    assert_eq!(seen, [0..2, 2..3, 3..6, 6..10, 10..11, 11..14, 14..16]);
}

/// Two of the three positions of the prompt lie in the model's first block of four.
#[test]
fn a_first_block_is_shorter_by_what_the_prompt_has_of_it() {
    let config = block_wise(4);
    let mut bench = Bench::in_phase(&config, 8, 6);
    let range = |bench: &Bench| bench.decoder.lanes().next().map(|lane| lane.range);
    assert_eq!(range(&bench), Some(span(0..2)));
    bench.step(&[(0, "a", 0.95), (1, "a", 0.95)]);
    assert_eq!(range(&bench), Some(span(2..6)));
}
