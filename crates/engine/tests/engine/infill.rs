//! Infilling: the suffix is committed context right of the generation.

use asynclane_engine::{FinishReason, Given, Refusal, Request};
use sim::SimExecutor;

use crate::common::{LANE_DECODERS, Lab, STOP, Scripted, config, request, sim};

const BLOCKS: &str = "schedule=block_wise,commit=threshold,threshold=0.9,block_length=4";

fn infill(settings: &str, max_tokens: u32) -> Request {
    let given = Given { suffix: vec![50, 51], ..Given::default() };
    Request { given, ..request(&[10, 11, 12], max_tokens, settings) }
}

/// The suffix has the positions after the budget and the slots after the prompt. So every row
/// that sees the prompt sees the suffix.
#[test]
fn the_suffix_lies_behind_the_prompt_and_stands_behind_the_budget() {
    let mut scripted = Scripted::new(infill(&format!("{BLOCKS},cache=dual"), 8));
    assert_eq!(
        scripted.step(&[(0, 20, 0.95), (1, 21, 0.95)]),
        ["pages 0 1 2 3: 0..3 = 10 11 12 see 13; 11..13 at 3 = 50 51 see 13; \
          3..11 at 5 = ? ? ? ? _ _ _ _ see 13"]
    );
    assert_eq!(
        scripted.step(&[(2, 22, 0.95), (3, 23, 0.95)]),
        ["pages 0 1 2 3: 3..7 at 5 = 20 21 ? ? see 13"]
    );
}

#[test]
fn a_lane_sees_the_suffix_from_its_first_forward_on() {
    let lanes = "schedule=asynclane,commit=threshold,threshold=0.9,block_length=4,lookahead=2,\
                 fork=sentence,min_fill=0,min_clock=0,cache=fresh,rows=all,refresh=never";
    let mut scripted = Scripted::new(infill(lanes, 16));
    assert_eq!(
        scripted.step(&[(1, 2, 0.95), (3, 30, 0.95)]),
        ["pages 0 1 2: 0..3 = 10 11 12 see 11; 19..21 at 3 = 50 51 see 11; \
          3..9 at 5 = ? ? ? ? ? ? see 11"]
    );
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2 3: 3..5 at 5 = ?- 2 see 7; 5..11 at 7 = ? 30 ? ? ? ? see 13"]
    );
}

/// A stop token cuts the canvas; the suffix keeps its positions.
#[test]
fn a_cut_canvas_keeps_its_suffix() {
    let mut scripted = Scripted::new(infill(&format!("{BLOCKS},cache=none"), 4));
    scripted.step(&[(2, STOP, 0.95)]);
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2: 0..3 = 10 11 12 see 8; 7..9 at 3 = 50 51 see 8; 3..6 at 5 = ? ? 1 see 8"]
    );
}

#[test]
fn every_decoder_fills_the_gap_with_the_text_it_would_write_and_counts_the_suffix_as_prompt() {
    for settings in LANE_DECODERS.into_iter().chain(["preset=vanilla", "preset=fast_dllm_dual"]) {
        let executor = SimExecutor::new(sim(2000, 4)).expect("a valid model");
        let mut lab = Lab::new(&config(), executor);
        let id = lab.submit(infill(settings, 24)).expect("there is room");
        lab.finish();
        let outcome = lab.outcome(id).expect("it finishes");
        let mut expected = lab.executor.hidden_text(&[10, 11, 12], 24);
        let stops = expected.last() == Some(&STOP);
        expected.retain(|token| *token != STOP);
        assert_eq!(outcome.tokens, expected, "{settings}");
        assert_eq!(outcome.reason == FinishReason::Stop, stops, "{settings}");
        assert_eq!(outcome.stats.prompt_tokens, 5, "{settings}");
    }
}

#[test]
fn the_suffix_counts_for_every_limit() {
    let mut lab = Lab::new(&config(), SimExecutor::new(sim(2000, 4)).expect("a valid model"));
    let refusal = lab.submit(infill("balanced", 252));
    let (tokens, limit) = (257, 256);
    assert_eq!(refusal, Err(Refusal::TooLong { tokens, limit }));
    let mut foreign = infill("balanced", 8);
    foreign.given.suffix.push(64);
    let (token, vocab_size) = (64, 64);
    assert_eq!(lab.submit(foreign), Err(Refusal::UnknownToken { token, vocab_size }));
    assert!(lab.submit(infill("balanced", 251)).is_ok());
    lab.finish();
}
