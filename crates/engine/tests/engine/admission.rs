//! Requests that are refused or finish at once, and the order of starts.

use asynclane_engine::{Engine, FinishReason, Refusal, SequenceStats};
use sim::SimExecutor;
use step::{Bias, Executor};

use crate::common::{LANE_DECODERS, Lab, STOP, config, request, sim};

fn lab(pages: u32) -> Lab {
    Lab::new(&config(), SimExecutor::new(sim(pages, 4)).expect("a valid model"))
}

#[test]
fn a_sequence_beyond_the_length_of_the_model_is_refused() {
    let mut lab = lab(2000);
    let too_long = request(&[20; 200], 57, "fast_dllm_dual");
    assert_eq!(lab.submit(too_long), Err(Refusal::TooLong { tokens: 257, limit: 256 }));
    assert!(lab.submit(request(&[20; 200], 56, "fast_dllm_dual")).is_ok());
}

#[test]
fn the_engine_may_be_stricter_than_the_model_but_not_laxer() {
    let spec = SimExecutor::new(sim(2000, 4)).expect("a valid model").spec();
    let with = |len| {
        let mut config = config();
        config.max_model_len = len;
        Engine::new(&config, spec).limits().max_model_len
    };
    assert_eq!([with(None), with(Some(100)), with(Some(1000))], [256, 100, 256]);
}

#[test]
fn lengths_that_overflow_are_too_long() {
    let mut lab = lab(2000);
    let refused = lab.submit(request(&[20; 8], u32::MAX, "fast_dllm_dual"));
    assert_eq!(refused, Err(Refusal::TooLong { tokens: u32::MAX, limit: 256 }));
}

#[test]
fn a_sequence_whose_pages_never_fit_is_refused() {
    let mut lab = lab(10);
    let refused = lab.submit(request(&[20; 10], 31, "fast_dllm_dual"));
    assert_eq!(refused, Err(Refusal::TooManyPages { pages: 11, limit: 10 }));
    let id = lab.submit(request(&[20; 10], 30, "fast_dllm_dual")).expect("10 pages fit");
    lab.finish();
    assert!(lab.outcome(id).is_some());
}

#[test]
fn tokens_outside_the_vocabulary_are_refused_wherever_they_stand() {
    let refusal = Err(Refusal::UnknownToken { token: 64, vocab_size: 64 });
    let mut prompt = request(&[20, 64], 10, "balanced");
    assert_eq!(lab(2000).submit(prompt.clone()), refusal);
    prompt.prompt = vec![20, 63];
    let mut stop = prompt.clone();
    stop.stop_tokens.push(64);
    assert_eq!(lab(2000).submit(stop), refusal);
    let mut bias = prompt.clone();
    bias.logits.biases.push(Bias::add(64, 1.0));
    assert_eq!(lab(2000).submit(bias), refusal);
    assert!(lab(2000).submit(prompt).is_ok());
}

#[test]
fn refusals_name_the_number_and_the_limit() {
    let texts = [
        Refusal::TooLong { tokens: 300, limit: 256 },
        Refusal::TooManyPages { pages: 11, limit: 10 },
        Refusal::UnknownToken { token: 64, vocab_size: 63 },
    ]
    .map(|refusal| refusal.to_string());
    assert_eq!(
        texts,
        [
            "300 tokens of prompt and max_tokens exceed the limit of 256",
            "the sequence needs 11 KV pages, the pool has 10",
            "token id 64 is outside the vocabulary of 63",
        ]
    );
}

#[test]
fn a_budget_of_zero_finishes_at_once_without_a_forward() {
    let mut lab = lab(2000);
    let id = lab.submit(request(&[20, 21], 0, "balanced")).expect("nothing is wrong with it");
    assert!(!lab.step(), "there is nothing to run");
    let outcome = lab.outcome(id).expect("it has finished");
    assert_eq!((outcome.tokens, outcome.reason), (Vec::new(), FinishReason::Length));
    let expected = SequenceStats { prompt_tokens: 2, ..SequenceStats::default() };
    assert_eq!(outcome.stats, expected);
    assert!(lab.engine.is_idle());
}

#[test]
fn an_empty_prompt_generates_like_any_other() {
    for settings in LANE_DECODERS.into_iter().chain(["vanilla", "fast_dllm_dual"]) {
        let mut lab = lab(2000);
        let id = lab.submit(request(&[], 60, settings)).expect("there is room");
        lab.finish();
        let mut text = lab.executor.hidden_text(&[], 60);
        text.retain(|token| *token != STOP);
        assert_eq!(lab.outcome(id).expect("it finishes").tokens, text, "{settings}");
    }
}

/// Mask and stop ids in a prompt are plain tokens: never filled, never an end, never changed.
#[test]
fn a_prompt_may_hold_mask_and_stop_ids() {
    let prompt = [20, 0, STOP, 21, 0, STOP];
    for settings in LANE_DECODERS.into_iter().chain(["vanilla", "fast_dllm_prefix"]) {
        let mut lab = lab(2000);
        let id = lab.submit(request(&prompt, 60, settings)).expect("there is room");
        let rows = &lab.plan().rows;
        let tokens: Vec<u32> = rows[..6].iter().map(|row| row.token).collect();
        assert_eq!(tokens, prompt, "{settings}");
        assert!(rows[..6].iter().all(|row| row.score == step::Score::None), "{settings}");
        lab.finish_planned();
        let mut text = lab.executor.hidden_text(&prompt, 60);
        text.retain(|token| *token != STOP);
        let outcome = lab.outcome(id).expect("it finishes");
        assert_eq!(outcome.tokens, text, "{settings}");
        assert_eq!(outcome.stats.prompt_tokens, 6);
    }
}

/// With equal priorities a small sequence does not overtake a large one.
#[test]
fn sequences_start_in_order_of_arrival() {
    let mut config = config();
    config.max_running = 2;
    let mut lab = Lab::new(&config, SimExecutor::new(sim(35, 4)).expect("a valid model"));
    // 15, 15, 28 and 3 pages of a pool of 35, of which a client has 31 for several sequences.
    for (seed, budget) in [(0, 50), (1, 50), (2, 102), (3, 2)] {
        let mut request = request(&[20; 10], budget, "vanilla");
        request.sampling.seed = seed;
        lab.submit(request).expect("each one fits alone");
    }
    let started = |lab: &Lab| lab.logs.values().map(|log| log.started).collect::<Vec<_>>();
    assert!(lab.step());
    assert_eq!(started(&lab), [true, true, false, false]);
    let ended = |lab: &Lab| lab.logs.values().filter(|log| log.end.is_some()).count();
    while ended(&lab) < 2 {
        assert!(!started(&lab)[3], "the last one waits for the one before it");
        lab.step();
    }
    lab.finish();
    assert_eq!(ended(&lab), 4);
}

/// Under a row budget of one forward a step, the sequence that waited longest runs.
#[test]
fn sequences_take_turns() {
    let mut config = config();
    config.row_budget = 1;
    let mut lab = Lab::new(&config, SimExecutor::new(sim(2000, 4)).expect("a valid model"));
    for seed in 0..3 {
        let mut request = request(&[20; 10], 40, "vanilla");
        request.sampling.seed = seed;
        lab.submit(request).expect("there is room");
    }
    for turn in 0..15 {
        assert!(lab.step());
        let forwards: Vec<u32> = lab.logs.values().map(|log| log.forwards).collect();
        let expected: Vec<u32> = (0..3).map(|index| (turn + 3 - index) / 3).collect();
        assert_eq!(forwards, expected, "after {} steps", turn + 1);
    }
}
