//! The prefix cache: a sequence does not forward a prefix whose pages another one has left.

use asynclane_engine::{Request, SequenceStats};
use sim::{SimConfig, SimExecutor};
use step::{Attention, TokenId};

use crate::common::{Lab, Rng, ShowSeed, alone, config, random_wishes, request, seeds, sim};

/// Every kind of weights with exact K/V, and its decoder.
const KINDS: [(Attention, &str); 7] = [
    (Attention::Causal, "wedlm"),
    (Attention::Causal, "autoregressive"),
    (Attention::Blocks(6), "block_causal,block_length=6"),
    (Attention::OpenBlock(6), "block_causal,block_length=6"),
    (Attention::OpenBlock(6), "self_speculation,window=6"),
    (Attention::OpenBlock(6), "autoregressive"),
    (Attention::Canvas(6), "canvas,block_length=6"),
];

fn lab(attention: Attention, pages: u32) -> Lab {
    Lab::new(&config(), SimExecutor::new(model(attention, pages)).expect("a valid model"))
}

/// Pages of four slots.
fn model(attention: Attention, pages: u32) -> SimConfig {
    SimConfig { attention, ..sim(pages, 4) }
}

/// 20, 21, ...
fn prompt(length: u32) -> Vec<TokenId> {
    (20..20 + length).collect()
}

fn asked(prompt: &[TokenId], settings: &str, seed: u64) -> Request {
    let mut asked = request(prompt, 30, settings);
    asked.sampling.seed = seed;
    asked
}

#[test]
fn the_second_of_two_equal_prompts_forwards_its_answer_alone() {
    for (attention, settings) in KINDS {
        let mut lab = lab(attention, 100);
        let first = lab.submit(asked(&prompt(14), settings, 1)).expect("room");
        lab.finish();
        let second = lab.submit(asked(&prompt(14), settings, 2)).expect("room");
        lab.finish();
        let outcome = |id| lab.outcome(id).expect("it finishes");
        let (first, second) = (outcome(first), outcome(second));
        assert_eq!(first.tokens, second.tokens, "{settings}");
        // Three whole pages of the prompt, or of the two blocks of six in it.
        assert_eq!((first.stats.cached_tokens, second.stats.cached_tokens), (0, 12));
        // Every forward computes the whole canvas, and noise decides how many there are.
        let beside = |stats: &SequenceStats| match attention {
            Attention::Canvas(length) => stats.positions - u64::from(length * stats.forwards()),
            _ => stats.positions,
        };
        let saved = beside(&first.stats) - beside(&second.stats);
        assert_eq!(saved, 12, "{settings}");
    }
}

/// The next prompt of a conversation is the last prompt with its answer.
#[test]
fn an_answer_is_part_of_the_next_prompt() {
    let mut lab = lab(Attention::Causal, 100);
    let first = lab.submit(asked(&prompt(6), "wedlm", 1)).expect("room");
    lab.finish();
    let answer = lab.outcome(first).expect("it finishes").tokens;
    let all: Vec<TokenId> = prompt(6).into_iter().chain(answer).collect();
    let second = lab.submit(asked(&all, "wedlm", 2)).expect("room");
    lab.finish();
    let cached = lab.outcome(second).expect("it finishes").stats.cached_tokens;
    // The last tokens of an answer are never forwarded.
    assert!(cached > 6 && cached <= all.len() as u32, "{cached} of {}", all.len());
}

/// Unused cached pages are given to sequences that need them, the least recently used first.
#[test]
fn cached_pages_never_keep_a_sequence_out() {
    let mut lab = lab(Attention::Causal, 18);
    let mut hits = 0;
    for round in 0..6u32 {
        let texts = [prompt(20), (40..60).collect(), prompt(20)];
        for (number, text) in (0..).zip(texts) {
            let seed = u64::from(3 * round + number);
            let id = lab.submit(asked(&text, "wedlm", seed)).expect("room");
            lab.finish();
            hits += lab.outcome(id).expect("it finishes").stats.cached_tokens;
        }
    }
    assert!(hits > 0, "the last text is often there still");
    let gauges = lab.engine.report().gauges;
    assert_eq!(gauges.pages_used, 0);
    assert!(gauges.pages_idle > 0);
}

#[test]
fn without_a_prefix_cache_nothing_is_left() {
    let mut config = config();
    config.prefix_cache = false;
    let executor = SimExecutor::new(model(Attention::Causal, 100)).expect("a valid model");
    let mut lab = Lab::new(&config, executor);
    for seed in 1..3 {
        let id = lab.submit(asked(&prompt(14), "wedlm", seed)).expect("room");
        lab.finish();
        assert_eq!(lab.outcome(id).expect("it finishes").stats.cached_tokens, 0);
    }
}

/// Random requests with few different prefixes and some cancels, over a pool that is too small for
/// all. Each has the tokens that it has alone, and the pages are consistent after every step.
#[test]
fn shared_prefixes_change_no_answer() {
    let (mut cached, mut finished) = (0, 0);
    for seed in seeds(40) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0x9EF1);
        let (attention, settings) = rng.pick(&KINDS);
        let mut lab = lab(attention, 60);
        let mut requests = Vec::new();
        for number in 0..24 {
            let mut request = random_wishes(&mut rng, number, settings);
            request.given.suffix.clear();
            let least = u32::from(matches!(attention, Attention::OpenBlock(_)));
            request.prompt = prompt(rng.range(least, 24));
            if rng.chance(30) {
                request.prompt.push(rng.range(10, 60));
            }
            let id = lab.submit(request.clone()).expect("there is room");
            requests.push((id, request));
            for _ in 0..rng.range(0, 4) {
                lab.step();
            }
            if rng.chance(10) {
                lab.cancel(id);
            }
        }
        lab.finish();
        for (id, request) in requests {
            let Some(outcome) = lab.outcome(id) else {
                continue;
            };
            let expected = alone(&request, &model(attention, 60));
            assert_eq!(outcome.tokens, expected.tokens, "{request:?}");
            assert_eq!(outcome.reason, expected.reason, "{request:?}");
            let forwards = |stats: asynclane_engine::SequenceStats| stats.forwards();
            assert_eq!(forwards(outcome.stats), forwards(expected.stats));
            cached += outcome.stats.cached_tokens;
            finished += 1;
        }
    }
    assert!(cached > 2000 && finished > 800, "{cached}, {finished}");
}
