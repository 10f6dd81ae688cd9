//! The rules that read a whole block, on hand-made steps.

use asynclane_decode::{Candidate, CommitConfig, DecoderConfig, Effect, Filter, Proposal, Weights};

use crate::common::{
    Bench, advance, at, block_wise, candidate, commit, edited, id, masked, resize, schedule,
    shorten, span, text, with_schedule,
};

fn bench(commit: CommitConfig, block_length: u32, budget: u32) -> Bench {
    let config = DecoderConfig { commit, ..block_wise(block_length) };
    Bench::new(&config, budget)
}

fn editing(threshold: f64, edit_threshold: f64, passes: u32) -> CommitConfig {
    commit("edit")
        .with("threshold", threshold)
        .with("edit_threshold", edit_threshold)
        .with("edit_passes", passes)
}

/// The offsets that a step commits.
fn committed(effects: &[Effect]) -> Vec<u32> {
    let commits = crate::common::committed(effects);
    commits.into_iter().map(|(offset, _)| offset).collect()
}

/// A step with these gaps; probabilities fall from left to right. Returns the committed offsets.
fn gapped(bench: &mut Bench, gap: impl Fn(u32) -> f32) -> Vec<u32> {
    let effects = bench.step_by(|offset| Candidate {
        gap: gap(offset),
        ..candidate(id("a"), 0.5 - 0.01 * f64::from(offset))
    });
    committed(&effects)
}

/// The mean gap of the answer must reach 7.5, then 5, then 2.5.
#[test]
fn early_commit_fills_the_canvas_once_the_answer_is_clear() {
    let commit = commit("early_commit")
        .with("tokens_per_step", 2u32)
        .with("answer_start", 4u32)
        .with("answer_length", 2u32);
    let answer = |first: f32, second: f32| {
        move |offset: u32| match offset {
            4 => first,
            5 => second,
            _ => 99.0,
        }
    };
    let mut bench = bench(commit, 6, 8);
    assert_eq!(gapped(&mut bench, answer(10.0, 4.5)), [0, 1]);
    assert_eq!(gapped(&mut bench, answer(5.0, 4.5)), [2, 3]);
    assert_eq!(gapped(&mut bench, answer(0.0, 5.0)), [4, 5, 6, 7]);
    assert!(bench.decoder.is_done());
}

/// Both positions of the answer are filled by the first step; their gaps decide all the same.
#[test]
fn early_commit_asks_filled_positions_of_the_answer_too() {
    let commit = commit("early_commit").with("tokens_per_step", 2u32).with("answer_length", 2u32);
    let mut unsure = bench(commit.clone(), 4, 8);
    assert_eq!(gapped(&mut unsure, |_| 7.0), [0, 1]);
    assert_eq!(gapped(&mut unsure, |offset| [5.0, 4.5][offset as usize % 2]), [2, 3]);
    let mut sure = bench(commit, 4, 8);
    assert_eq!(gapped(&mut sure, |_| 7.0), [0, 1]);
    assert_eq!(gapped(&mut sure, |_| 5.0), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn early_commit_without_an_answer_on_the_canvas_is_top_k() {
    let commit = commit("early_commit").with("answer_start", 8u32);
    let mut bench = bench(commit, 4, 8);
    for step in 1..=8 {
        assert_eq!(committed(&bench.step(&[])).len(), 1, "step {step}");
    }
    assert!(bench.decoder.is_done());
}

#[test]
fn a_filter_is_two_layers() {
    let weights = Weights {
        first: vec![1.0, -1.0, 0.0, 2.0],
        first_bias: vec![0.0, -0.5],
        second: vec![1.0, 0.0, 1.0, -1.0],
        second_bias: vec![0.25, 0.5],
    };
    let filter = Filter::new(weights.clone()).expect("two layers of 2 x 2");
    let mut logits = Vec::new();
    filter.logits(&[0.75, 0.5], &mut logits);
    // Hidden: 0.75 - 0.5 = 0.25 and 2 * 0.5 - 0.5 = 0.5.
    assert_eq!(logits, [0.25 + 0.25, 0.25 - 0.5 + 0.5]);
    filter.logits(&[0.0, 1.0], &mut logits);
    // Hidden: relu(-1) = 0 and 1.5.
    assert_eq!(logits, [0.25, -1.5 + 0.5]);
    let ragged = Weights { first: vec![0.0; 3], ..weights };
    let error = Filter::new(ragged).expect_err("three weights");
    assert_eq!((error.expected, error.found), (4, 3));
    let message = "a layer of the filter needs 4 weights, found 3";
    assert_eq!(error.to_string(), message);
    assert!(Filter::new(Weights::default()).is_err());
}

/// The filter of these tests accepts what has a confidence above 0.5 (its logit is 8 c - 4); the
/// confidences of committed tokens are asked for as well.
#[test]
fn a_learned_filter_commits_what_it_accepts_and_the_best() {
    let commit = commit("learned_filter").with("filter_threshold", 0.5);
    let mut bench = bench(commit, 8, 8);
    let effects = bench.step(&[(1, "c", 0.6), (3, "7", 0.5), (6, "a", 0.9)]);
    assert_eq!(committed(&effects), [1, 6]);
    let effects = bench.step(&[(1, "a", 0.2), (3, "7", 0.4)]);
    assert_eq!(effects, [masked(3, "7", 0.4)]);
}

/// EoTP: the likeliest stop token at any mask of the canvas, wherever it lies, ends the canvas.
#[test]
fn a_learned_filter_may_cut_the_canvas_at_a_likely_end() {
    let commit = commit("learned_filter").with("filter_threshold", 1.0);
    let said = [(0, "a", 0.7), (5, "<eos>", 0.5), (6, "<eot>", 0.6), (7, "a", 0.9)];
    let bench_of = |floor: f64| {
        let mut bench = bench(commit.clone().with("end_threshold", floor), 4, 8);
        let lane = bench.decoder.lanes().next().expect("a lane");
        assert_eq!(lane.lookahead, span(4..8), "masks after the block are scored");
        bench.step(&said)
    };
    let end = masked(6, "<eot>", 0.6);
    let cut = [masked(0, "a", 0.7), end, shorten(7), advance(0, 1)];
    assert_eq!(bench_of(0.6), cut);
    assert_eq!(bench_of(0.0), cut);
    assert_eq!(bench_of(0.7), [masked(0, "a", 0.7), advance(0, 1)]);
    // Without a floor only the block is read, and nothing is cut.
    let mut plain = bench(commit, 4, 8);
    assert!(plain.decoder.lanes().all(|lane| lane.lookahead.is_empty()));
    assert_eq!(plain.step(&said[..1]), [masked(0, "a", 0.7), advance(0, 1)]);
}

#[test]
fn draft_verify_takes_two_steps_from_one_forward_if_its_guess_was_right() {
    let commit = commit("draft_verify").with("draft_steps", 2u32);
    let said = [(0, "a", 0.9), (1, "c", 0.8), (2, "7", 0.7), (3, "a", 0.6)];
    let mut right = bench(commit.clone(), 4, 4);
    assert_eq!(right.step(&said)[0], masked(0, "a", 0.9));
    let guesses = right.decoder.branches();
    assert_eq!((guesses.count(), guesses.proposals[0].offset), (1, at(1)));
    // The canvas with the guess gives the same candidates: two steps.
    let rest = &said[1..];
    let effects = right.step(rest);
    assert_eq!(committed(&effects), [1, 2]);
    assert_eq!(effects[..2], [masked(1, "c", 0.8), advance(1, 2)]);
    // Another mask is the best now: the guess is discarded.
    let mut wrong = bench(commit, 4, 4);
    wrong.step(&said);
    let effects = wrong.step(&[(1, "c", 0.5), (2, "7", 0.7), (3, "a", 0.6)]);
    assert_eq!(effects, [masked(2, "7", 0.7)]);
}

/// Every entropy is 1 here, so a bound of 1.5 takes the first two masks.
#[test]
fn nested_drafts_climb_as_long_as_the_bound_sanctions_the_next_level() {
    let commit = commit("nested_drafts")
        .with("entropy_threshold", 1.5)
        .with("draft_levels", 3u32)
        .with("draft_floor", 0.3);
    let said = [0.9, 0.8, 0.97, 0.6, 0.4, 0.2, 0.2, 0.2];
    let said: Vec<_> = (0..).zip(said).map(|(offset, p)| (offset, "a", p)).collect();
    let mut right = bench(commit.clone(), 8, 8);
    assert_eq!(committed(&right.step(&said)), [0, 1]);
    // Thresholds 0.95, 0.625 and 0.3; the second adds nothing.
    let guesses = right.decoder.branches();
    assert_eq!(guesses.ends, [1, 3]);
    // Offset 2, then 3 and 4 on its canvas, then two more on theirs.
    assert_eq!(committed(&right.step(&said[2..])), [2, 3, 4, 5, 6]);
    // Another token than the guessed one: no level is reached.
    let mut wrong = bench(commit, 8, 8);
    wrong.step(&said);
    let mut others = said[2..].to_vec();
    others[0].1 = "c";
    assert_eq!(committed(&wrong.step(&others)), [2, 3]);
    assert_eq!(wrong.canvas(), "aaca____");
}

#[test]
fn nested_drafts_guess_no_stop_token() {
    let commit = commit("nested_drafts").with("entropy_threshold", 0.0);
    let mut bench = bench(commit, 4, 4);
    bench.step(&[(0, "a", 0.9), (1, "c", 0.8), (2, "<eos>", 0.99), (3, "a", 0.7)]);
    let guesses = bench.decoder.branches().proposals.iter();
    let offsets: Vec<u32> = guesses.map(|guess| guess.offset.get()).collect();
    assert_eq!(offsets, [1, 3]);
}

#[test]
fn an_edit_rule_emits_a_block_when_it_is_settled() {
    let commit = editing(0.7, 0.5, 16);
    let mut bench = bench(commit, 3, 6);
    let effects = bench.step(&[(0, "a", 0.9), (1, "c", 0.8), (2, "7", 0.3)]);
    assert_eq!(effects, [masked(0, "a", 0.9), masked(1, "c", 0.8)]);
    // The last mask falls (the best, as none passes) and offset 0 changes in the same step.
    let effects = bench.step(&[(0, "7", 0.6), (1, "c", 0.9), (2, "7", 0.6)]);
    assert_eq!(effects, [masked(2, "7", 0.6), edited(0, "7", 0.6)]);
    // A pass that changes one more token; 0.5 itself is too little.
    let effects = bench.step(&[(0, "a", 0.5), (1, "a", 0.51), (2, "7", 0.9)]);
    assert_eq!(effects, [edited(1, "a", 0.51)]);
    let effects = bench.step(&[(0, "7", 0.9), (1, "a", 0.9), (2, "7", 0.9)]);
    assert!(effects.contains(&advance(0, 3)), "{effects:?}");
    assert_eq!(bench.canvas(), "7a7___");
}

#[test]
fn an_edit_rule_that_finds_no_end_is_given_one() {
    let commit = editing(0.0, 0.0, 2);
    let mut bench = bench(commit, 2, 2);
    bench.step(&[(0, "a", 0.9), (1, "a", 0.9)]);
    assert_eq!(bench.step(&[(0, "c", 0.9)]), [edited(0, "c", 0.9)]);
    let effects = bench.step(&[(0, "7", 0.9)]);
    assert_eq!(effects[0], edited(0, "7", 0.9));
    assert!(effects.contains(&advance(0, 2)) && bench.decoder.is_done());
}

/// A stop token may be edited away as long as its block is not settled.
#[test]
fn an_edit_rule_cuts_the_canvas_with_settled_stop_tokens_only() {
    let commit = editing(0.5, 0.5, 16);
    let stop = crate::common::text(crate::common::STOPS[0]);
    let mut bench = bench(commit, 3, 9);
    let effects = bench.step(&[(0, "a", 0.9), (1, stop, 0.9), (2, "c", 0.9)]);
    assert_eq!((committed(&effects).len(), bench.decoder.canvas().len()), (3, 9));
    bench.step(&[(0, "a", 0.9), (1, "c", 0.9), (2, stop, 0.9)]);
    let effects = bench.step(&[(0, "a", 0.9), (1, "c", 0.9), (2, stop, 0.9)]);
    assert_eq!(bench.decoder.canvas().len(), 3);
    assert!(effects.contains(&advance(0, 2)) && bench.decoder.is_done());
}

/// The guesses that the next forward checks.
fn checks(bench: &Bench) -> Vec<(u32, String)> {
    let guesses = bench.decoder.guesses_to_check().iter();
    let told = |guess: &Proposal| (guess.offset.get(), text(guess.candidate.token).to_owned());
    guesses.map(told).collect()
}

fn guesses(texts: &[(u32, &str)]) -> Vec<(u32, String)> {
    texts.iter().map(|(offset, text)| (*offset, (*text).to_owned())).collect()
}

/// S2D2: a forward that guesses commits nothing; the one that checks commits up to the first other token.
#[test]
fn a_run_of_masks_is_guessed_and_then_checked() {
    let mut bench = bench(commit("self_speculative"), 4, 8);
    let said = [(0, "a", 0.2), (1, "(", 0.2), (2, "c", 0.2), (3, "7", 0.2)];
    assert_eq!(bench.step(&said), []);
    assert_eq!(checks(&bench), guesses(&[(0, "a"), (1, "("), (2, "c"), (3, "7")]));
    let said = [(0, "a", 0.3), (1, " b", 0.4), (2, "c", 0.5), (3, "7", 0.6)];
    let effects = bench.step(&said);
    assert_eq!(effects, [masked(0, "a", 0.3), masked(1, " b", 0.4), advance(0, 2)]);
    assert_eq!(checks(&bench), []);
    // Where all guesses are right, no token is committed after them.
    bench.step(&[(2, "c", 0.5), (3, "7", 0.6)]);
    let effects = bench.step(&[(2, "c", 0.5), (3, "7", 0.6)]);
    assert_eq!(effects[..2], [masked(2, "c", 0.5), masked(3, "7", 0.6)]);
}

/// A run of two masks is too short for a check: what is above the threshold is committed, or the best.
#[test]
fn a_short_run_is_committed_unchecked() {
    let rule = commit("self_speculative").with("min_span", 3u32).with("threshold", 0.5);
    let mut bench = bench(rule, 2, 4);
    assert_eq!(bench.step(&[(0, "a", 0.5), (1, " b", 0.4)])[..1], [masked(0, "a", 0.5)]);
    assert_eq!(bench.step(&[(1, " b", 0.6)])[..1], [masked(1, " b", 0.6)]);
    let effects = bench.step(&[(2, "c", 0.6), (3, "7", 0.7)]);
    assert_eq!(effects[..2], [masked(2, "c", 0.6), masked(3, "7", 0.7)]);
}

/// Guesses after a guessed stop token are not checked.
#[test]
fn guesses_are_checked_up_to_a_stop_token() {
    let mut bench = bench(commit("self_speculative"), 4, 4);
    bench.step(&[(0, "a", 0.2), (1, "<eos>", 0.2), (2, "c", 0.2), (3, "7", 0.2)]);
    assert_eq!(checks(&bench), guesses(&[(0, "a"), (1, "<eos>")]));
    let effects = bench.step(&[(0, "a", 0.3), (1, "<eos>", 0.3)]);
    let commits = [masked(0, "a", 0.3), masked(1, "<eos>", 0.3)];
    assert_eq!(effects[..3], [commits[0], commits[1], shorten(2)]);
    assert!(bench.decoder.is_done());
}

/// A window of four: every step commits the guesses that were right and the token after them.
#[test]
fn a_window_commits_right_guesses_and_one_token_more() {
    let config = DecoderConfig {
        commit: commit("causal_check").with("entropy_threshold", 1.5),
        ..with_schedule(schedule("streaming").with("window", 4u32))
    };
    let mut bench = Bench::new(&config, 7);
    let said = [(0, "a", 0.3), (1, " b", 0.3), (2, "c", 0.3), (3, "7", 0.3)];
    assert_eq!(bench.step(&said), [masked(0, "a", 0.3), resize(0, 5), advance(0, 1)]);
    assert_eq!(checks(&bench), guesses(&[(1, " b"), (2, "c")]));
    let effects = bench.step(&[(1, " b", 0.4), (2, "7", 0.4), (3, "(", 0.4)]);
    let commits = [masked(1, " b", 0.4), masked(2, "7", 0.4)];
    assert_eq!(effects, [commits[0], commits[1], resize(0, 7), advance(1, 3)]);
    assert_eq!(checks(&bench), guesses(&[(3, "(")]));
    // The mask after the guesses is checked too.
    let effects = bench.step(&[(3, "(", 0.4), (4, ")", 0.4)]);
    assert_eq!(effects[..2], [masked(3, "(", 0.4), masked(4, ")", 0.4)]);
}
