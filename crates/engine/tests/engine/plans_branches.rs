//! Exact batches of forwards with guessed canvases, watched tokens or scored committed tokens.

use asynclane_engine::{Penalties, Refusal};
use step::{Attention, LogitShift};

use crate::common::{Automaton, Lab, Scripted, config, request, sim};

/// A prompt of three tokens and eight masks in blocks of four, over pages of four slots.
fn scripted(settings: &str) -> Scripted {
    let settings = format!("schedule=block_wise,block_length=4,{settings}");
    Scripted::new(request(&[10, 11, 12], 8, &settings))
}

/// Three nested canvases of the block. Each has its own pages for the slots that it writes.
#[test]
fn draft_verify_tries_nested_canvases() {
    let mut scripted = scripted("cache=dual,commit=draft_verify,draft_steps=3");
    let said: &[(u32, u32, f64)] = &[(0, 20, 0.9), (1, 21, 0.8), (2, 22, 0.7), (3, 23, 0.6)];
    scripted.step(said);
    assert_eq!(
        scripted.step(&said[1..]),
        [
            "copy 0 -> 3",
            "copy 1 -> 4",
            "copy 0 -> 5",
            "copy 1 -> 6",
            "pages 0 1 2: 3..7 = 20 ? ? ? see 11",
            "pages 3 4 2: 3..7 = 20 21 ? ? see 11",
            "pages 5 6 2: 3..7 = 20 21 22 ? see 11",
        ]
    );
    // Every guess was right: the block is full, and the branches' pages are free.
    assert_eq!(scripted.engine.report().gauges.pages_used, 3);
    let next = scripted.step(&[]);
    assert_eq!(next, ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 ? ? ? ? see 11"]);
}

/// The block is repeated, not what is sealed; the block after it starts with one canvas.
#[test]
fn draft_verify_tries_canvases_of_a_block_over_exact_kv() {
    let settings = "block_causal,block_length=4,commit=draft_verify,draft_steps=3";
    let blocks = (Attention::Blocks(4), LogitShift::None);
    let mut scripted = Scripted::of(request(&[10, 11, 12, 13, 14], 7, settings), blocks);
    let said: &[(u32, u32, f64)] = &[(0, 20, 0.9), (1, 21, 0.8), (2, 22, 0.7)];
    assert_eq!(scripted.step(said), ["pages 0 1: 0..4 = 10 11 12 13 see 4; 4..8 = 14 ? ? ? see 8"]);
    assert_eq!(
        scripted.step(&said[1..]),
        ["copy 1 -> 2", "pages 0 1: 4..8 = 14 20 ? ? see 8", "pages 0 2: 4..8 = 14 20 21 ? see 8",]
    );
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2: 4..8 = 14 20 21 22 see 8; 8..12 = ? ? ? ? see 12"]
    );
}

/// Without a cache a canvas needs a table of its own.
#[test]
fn draft_verify_without_a_cache_computes_whole_canvases() {
    let mut scripted = scripted("cache=none,commit=draft_verify,draft_steps=2");
    scripted.step(&[(0, 20, 0.9), (1, 21, 0.8)]);
    assert_eq!(
        scripted.step(&[(1, 21, 0.8)]),
        [
            "pages 0 1 2: 0..11 = 10 11 12 20 ? ? ? _ _ _ _ see 11",
            "pages 3 4 5: 0..11 = 10 11 12 20 21 ? ? _ _ _ _ see 11",
        ]
    );
}

/// Both canvases have open rows, the second with guesses in the lane [0, 4) and in its lookahead; the
/// token committed last is forwarded on both.
#[test]
fn nested_drafts_guess_on_lanes() {
    let settings = "asynclane,commit=nested_drafts,entropy_threshold=0,draft_levels=1,cache=fused,\
                    rows=open,refresh=never,block_length=4,lookahead=2,fork=off,draft_threshold=0.5";
    let mut scripted = Scripted::new(request(&[10, 11, 12], 16, settings));
    let said: &[(u32, u32, f64)] = &[(0, 20, 0.99), (1, 21, 0.96), (4, 24, 0.97)];
    assert_eq!(scripted.step(said), ["pages 0 1 2: 0..9 = 10 11 12 ? ? ? ? ? ? see 9"]);
    assert_eq!(
        scripted.step(&said[1..]),
        [
            "copy 0 -> 3",
            "copy 1 -> 4",
            "copy 2 -> 5",
            "pages 0 1 2: 3..9 = 20 ? ? ? ? ? see 9",
            "pages 3 4 5: 3..9 = 20 21 ? ? 24 ? see 9",
        ]
    );
    // 24 is sanctioned, 21 beside it is not under a bound of 0: one of them is committed.
    let real = "pages 0 1 2: 4..9 = ? ? ? 24 ? see 9".to_owned();
    assert!(scripted.step(&[]).contains(&real));
}

/// Scored tokens carry an exclamation mark.
#[test]
fn edits_and_filters_score_the_tokens_of_the_block() {
    let mut scripted = scripted("cache=dual,commit=edit");
    scripted.step(&[(0, 20, 0.95), (2, 22, 0.95)]);
    assert_eq!(
        scripted.step(&[(0, 20, 0.95), (1, 21, 0.95), (2, 22, 0.95), (3, 23, 0.95)]),
        ["pages 0 1 2: 3..7 = 20! ? 22! ? see 11"]
    );
    // No mask is left; the tokens are scored once more.
    let said = [(0, 20, 0.95), (1, 21, 0.95), (2, 22, 0.95), (3, 23, 0.95)];
    assert_eq!(scripted.step(&said), ["pages 0 1 2: 3..7 = 20! 21! 22! 23! see 11"]);
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 ? ? ? ? see 11"]);
}

/// The tokens left of the frontier after the first forward are watched. Once their candidates have
/// changed, everything up to the end of the block is computed again.
#[test]
fn an_elastic_cache_watches_the_last_settled_tokens() {
    let settings =
        "cache=elastic,drift_threshold=0.9,commit=top_k,tokens_per_step=2,block_length=8";
    let mut scripted =
        Scripted::new(request(&[10, 11, 12], 8, &format!("schedule=block_wise,{settings}")));
    scripted.step(&[(0, 20, 0.9), (1, 21, 0.9)]);
    let watched = [(0, 20, 0.9), (1, 21, 0.9)];
    assert_eq!(
        scripted.step(&[watched[0], watched[1], (2, 22, 0.8), (3, 23, 0.8)]),
        ["pages 0 1 2: 3..11 = 20! 21! ? ? ? ? ? ? see 11"]
    );
    assert_eq!(
        scripted.step(&[watched[0], (1, 40, 0.9), (4, 24, 0.8), (5, 25, 0.8)]),
        ["pages 0 1 2: 3..11 = 20! 21! 22 23 ? ? ? ? see 11"]
    );
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 24 25 ? ? see 11"]);
}

fn refusal(settings: &str, change: impl Fn(&mut asynclane_engine::Request)) -> Option<String> {
    let mut config = config();
    config.capabilities = asynclane_engine::Capabilities::default();
    let executor = sim::SimExecutor::new(sim(2000, 4)).expect("a valid model");
    let mut lab = Lab::new(&config, executor);
    let mut request = request(&[20, 21], 60, settings);
    change(&mut request);
    match lab.submit(request) {
        Ok(_) => None,
        Err(refusal @ Refusal::Rule { .. }) => Some(refusal.to_string()),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_rule_is_refused_where_the_model_or_the_request_does_not_go_with_it() {
    let said = refusal("fast_dllm_dual,commit=edit", |_| {}).expect("no such weights");
    assert!(said.starts_with("commit: edit needs weights"), "{said}");
    assert_eq!(refusal("fast_dllm_dual,commit=edit,force=true", |_| {}), None);
    let said = refusal("fast_dllm_dual,commit=learned_filter", |_| {}).expect("no filter");
    assert!(said.starts_with("commit: learned_filter needs a filter"), "{said}");
    let drafts = "fast_dllm_dual,commit=draft_verify";
    assert_eq!(refusal(drafts, |_| {}), None);
    let noise = refusal(drafts, |request| request.sampling.temperature = 0.5);
    let message = "commit: draft_verify does not go with a temperature above 0";
    assert_eq!(noise.as_deref(), Some(message));
    let logprobs = refusal(drafts, |request| request.extras.logprobs = Some(1));
    let message = "commit: draft_verify does not go with log-probabilities";
    assert_eq!(logprobs.as_deref(), Some(message));
    for settings in [drafts, "fast_dllm_dual,commit=edit,force=true"] {
        let grammar = refusal(settings, |request| {
            request.constraint = Some(Box::new(Automaton::new(3)));
        });
        assert!(grammar.is_some_and(|said| said.ends_with("does not go with a grammar")));
        let penalised = refusal(settings, |request| {
            request.logits.penalties = Penalties { presence: 1.0, ..Penalties::default() };
        });
        assert!(penalised.is_some_and(|said| said.ends_with("does not go with penalties")));
    }
}

#[test]
fn a_filter_is_for_blocks_of_its_own_length() {
    let executor = sim::SimExecutor::new(sim(2000, 4)).expect("a valid model");
    let mut lab = Lab::new(&config(), executor);
    let settings = "fast_dllm_dual,commit=learned_filter,block_length=16";
    let refused = lab.submit(request(&[20, 21], 60, settings)).expect_err("16 is not 32");
    let message = "block_length: must be 32, the block length of the model's filter, got 16";
    assert_eq!(refused.to_string(), message);
}
