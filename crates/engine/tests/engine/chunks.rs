//! Chunked prefill: a long prompt is forwarded over several steps, and nothing else changes.

use asynclane_engine::{ClientId, EngineConfig, Request, SequenceId};
use sim::{SimConfig, SimExecutor};
use step::{Attention, LogitShift, TokenId};

use crate::common::{
    End, Lab, Outcome, Rng, Scripted, alone, config, drafted, random_wishes, request, sim,
};
use crate::matrix;

const CAUSAL: (Attention, LogitShift) = (Attention::Causal, LogitShift::None);
const NEXT: (Attention, LogitShift) = (Attention::Causal, LogitShift::One);
const BLOCKS: (Attention, LogitShift) = (Attention::Blocks(4), LogitShift::None);
const NEXT_BLOCK: (Attention, LogitShift) = (Attention::Blocks(4), LogitShift::One);

fn chunked(most: u32) -> EngineConfig {
    EngineConfig { prefill_chunk: most, ..config() }
}

fn model((attention, logit_shift): (Attention, LogitShift)) -> SimConfig {
    SimConfig { attention, logit_shift, ..sim(4000, 4) }
}

fn lab(config: &EngineConfig, weights: (Attention, LogitShift)) -> Lab {
    let executor = SimExecutor::new(model(weights)).expect("a valid model");
    Lab::new(config, executor)
}

/// 20, 21, ... within the vocabulary.
fn prompt(length: u32) -> Vec<TokenId> {
    (0..length).map(|index| 10 + (10 + index) % 50).collect()
}

/// A prompt of ten tokens, and the first batches for it.
fn batches(
    most: u32,
    weights: (Attention, LogitShift),
    settings: &str,
    count: usize,
) -> Vec<String> {
    let asked = request(&prompt(10), 11, settings);
    let mut scripted = Scripted::with(&chunked(most), asked, weights);
    let batch = |_| {
        let lines = scripted.step(&[]);
        assert_eq!(lines.len(), 1, "one segment and no copy");
        lines.concat()
    };
    (0..count).map(batch).collect()
}

/// The last chunk leaves the rows of the window alone, which is as long as a chunk.
#[test]
fn causal_chunks_have_as_many_rows_as_allowed() {
    let settings = "schedule=streaming,window=4,commit=threshold,threshold=0.9";
    assert_eq!(
        batches(4, CAUSAL, settings, 4),
        [
            "pages 0: 0..4 = 20 21 22 23 see back",
            "pages 0 1: 4..8 = 24 25 26 27 see back",
            "pages 0 1 2: 8..10 = 28 29 see back",
            "pages 0 1 2 3: 10..14 = ? ? ? ? see back",
        ]
    );
    assert_eq!(
        batches(8, CAUSAL, settings, 2),
        [
            "pages 0 1: 0..8 = 20 21 22 23 24 25 26 27 see back",
            "pages 0 1 2 3: 8..14 = 28 29 ? ? ? ? see back",
        ]
    );
}

/// The row of the last token predicts the first one, so it is in no chunk before the last.
#[test]
fn the_row_that_predicts_the_first_token_is_in_the_last_chunk() {
    assert_eq!(
        batches(9, NEXT, "autoregressive", 2),
        [
            "pages 0 1 2: 0..9 = 20 21 22 23 24 25 26 27 28 see back",
            "pages 0 1 2: 9..10 = 29! see back",
        ]
    );
    assert_eq!(
        batches(10, NEXT, "autoregressive", 1),
        ["pages 0 1 2: 0..10 = 20 21 22 23 24 25 26 27 28 29! see back"]
    );
}

/// Chunks end where blocks end. They have one block at least, and none of the block that the answer
/// begins in.
#[test]
fn block_causal_chunks_have_whole_blocks() {
    let settings = "block_causal,block_length=4";
    let expected = [
        "pages 0: 0..4 = 20 21 22 23 see 4",
        "pages 0 1: 4..8 = 24 25 26 27 see 8",
        "pages 0 1 2: 8..12 = 28 29 ? ? see 12",
    ];
    for most in [1, 4, 7] {
        assert_eq!(batches(most, BLOCKS, settings, 3), expected);
    }
    assert_eq!(
        batches(8, BLOCKS, settings, 2),
        [
            "pages 0 1: 0..4 = 20 21 22 23 see 4; 4..8 = 24 25 26 27 see 8",
            "pages 0 1 2: 8..12 = 28 29 ? ? see 12",
        ]
    );
    assert_eq!(batches(12, BLOCKS, settings, 1).len(), 1, "it fits whole");
}

/// A canvas is forwarded whole.
#[test]
fn a_canvas_follows_the_last_chunk() {
    let weights = (Attention::Canvas(4), LogitShift::None);
    let asked = request(&prompt(10), 8, "canvas,block_length=4");
    let mut scripted = Scripted::with(&chunked(6), asked, weights);
    let mut batch = || scripted.step(&[]).concat();
    assert_eq!(batch(), "pages 0 1: 0..6 = 20 21 22 23 24 25 see back");
    assert_eq!(batch(), "pages 0 1 2: 6..10 = 26 27 28 29 see back");
    let canvas = batch();
    assert!(canvas.starts_with("pages 0 1 2 3: 10..14 ="), "{canvas}");
    let whole =
        Scripted::with(&chunked(14), request(&prompt(10), 8, "canvas,block_length=4"), weights)
            .step(&[]);
    assert!(whole.concat().starts_with("pages 0 1 2 3: 0..10 ="), "{whole:?}");
}

/// Where the answer begins with a block, the last row of the block before predicts its first token.
#[test]
fn the_block_that_predicts_the_first_token_is_in_the_last_chunk() {
    let asked = request(&prompt(8), 8, "block_causal,block_length=4");
    let mut scripted = Scripted::with(&chunked(4), asked, NEXT_BLOCK);
    assert_eq!(scripted.step(&[]), ["pages 0: 0..4 = 20 21 22 23 see 4"]);
    assert_eq!(scripted.step(&[(0, 40, 0.9)]), ["pages 0 1: 4..8 = 24 25 26 27! see 8"]);
}

/// The part of a result that chunks do not change: all but their own count.
fn unsplit(mut outcome: Outcome) -> Outcome {
    outcome.stats.chunks = 0;
    outcome
}

/// Any request with a long prompt, of any of three clients.
fn long_wishes(rng: &mut Rng, number: u64, settings: &str) -> Request {
    let mut request = random_wishes(rng, number, settings);
    request.given.suffix.clear();
    let length = rng.pick(&[1, 12, 24, 25, 47, 96, 100]);
    request.prompt = prompt(length);
    if rng.chance(50) {
        request.prompt.push(rng.range(10, 60));
    }
    request.sender.client = ClientId(u64::from(rng.range(0, 3)));
    request
}

/// Every decoder over an exact cache, in every size of chunks, with prefix cache and without, among
/// requests of other clients: each sequence has the outcome that it has alone with a whole prefill.
#[test]
fn chunks_change_no_result() {
    let exact = |settings: &String| settings.contains("cache=exact");
    let decoders = matrix::combinations().into_iter().filter(exact);
    let runs: Vec<_> = decoders
        .flat_map(|settings| {
            let kinds = matrix::kinds(&settings).into_iter();
            kinds.map(move |weights| (settings.clone(), weights))
        })
        .collect();
    let (mut chunks, mut cached, mut number) = (0, 0, 0);
    for (settings, weights) in &runs {
        let block = match weights.0 {
            Attention::Blocks(length) => length,
            _ => 1,
        };
        for most in [1, 5, 16, 64] {
            for prefix_cache in [false, true] {
                number += 1;
                let mut rng = Rng::new(number ^ 0xC4A5);
                let row_budget = rng.pick(&[1, 40, 150, 5000]);
                let config = EngineConfig {
                    prefill_chunk: most,
                    prefix_cache,
                    row_budget,
                    long_quantum: rng.range(1, row_budget + 1),
                    max_running: rng.pick(&[1, 3, 8]),
                    ..drafted()
                };
                let found = crowd(&config, *weights, settings, &mut rng);
                for (request, outcome) in found {
                    let (given, found) = (request.prompt.len(), outcome.stats.chunks);
                    let whole = (most / block * block).max(block);
                    let bound = (given as u32).div_ceil(whole) + 1;
                    assert!(found <= bound, "{found} chunks of {given} rows, {settings}");
                    chunks += found;
                    cached += outcome.stats.cached_tokens;
                    let expected = alone(&request, &model(*weights));
                    let mut outcome = unsplit(outcome);
                    if outcome.stats.cached_tokens > 0 {
                        // Cached tokens are not computed; nothing else differs.
                        outcome.stats.cached_tokens = 0;
                        outcome.stats.positions = expected.stats.positions;
                    }
                    assert_eq!(outcome, expected, "{settings} {config:?} {request:?}");
                }
            }
        }
    }
    println!("{} runs, {chunks} chunks, {cached} cached tokens", number);
    assert!(number > 100 && chunks > 10_000 && cached > 1000);
}

/// The outcomes of four requests that arrive during the run.
fn crowd(
    config: &EngineConfig,
    weights: (Attention, LogitShift),
    settings: &str,
    rng: &mut Rng,
) -> Vec<(Request, Outcome)> {
    let mut lab = lab(config, weights);
    let mut requests = Vec::new();
    for number in 0..4 {
        let request = long_wishes(rng, number, settings);
        let id = lab.submit(request.clone()).expect("there is room");
        requests.push((id, request));
        for _ in 0..rng.range(0, 6) {
            lab.step();
        }
    }
    lab.finish();
    let counted = lab.logs.values().map(|log| u64::from(log.chunks));
    assert_eq!(counted.sum::<u64>(), lab.totals.chunks, "reports count chunks");
    let outcome = |id: SequenceId| lab.outcome(id).expect("nothing fails here");
    requests.into_iter().map(|(id, request)| (request, outcome(id))).collect()
}

/// Rows of the first two sequences in the next step.
fn rows(lab: &mut Lab) -> [u64; 2] {
    let counts =
        |lab: &Lab| [0, 1].map(|id| lab.logs.get(&SequenceId(id)).map_or(0, |log| log.positions));
    let before = counts(lab);
    assert!(lab.step());
    let after = counts(lab);
    [0, 1].map(|index| after[index] - before[index])
}

/// A prompt of 200 tokens beside a sequence that decodes one row a step: whole, it makes one step
/// longer by 200 rows; in chunks, no step has more than a chunk beside the decode row, and the decode
/// row is in every one.
#[test]
fn who_decodes_has_a_row_in_every_step_and_no_step_is_long() {
    for (most, expected) in
        [(0, vec![200]), (16, [vec![16; 12], vec![8]].concat()), (50, vec![50; 4])]
    {
        let config = EngineConfig {
            row_budget: 64,
            long_quantum: if most == 0 { 64 } else { most },
            ..chunked(most)
        };
        let mut lab = lab(&config, NEXT);
        let mut first = request(&[20, 21], 60, "autoregressive");
        first.stop_tokens.clear();
        lab.submit(first).expect("there is room");
        assert_eq!(rows(&mut lab), [2, 0]);
        let mut second = request(&prompt(200), 20, "autoregressive");
        second.sampling.seed = 1;
        second.stop_tokens.clear();
        lab.submit(second).expect("there is room");
        let mut found = Vec::new();
        while found.iter().sum::<u64>() < 200 {
            let [decoded, prefilled] = rows(&mut lab);
            found.extend((prefilled > 0).then_some(prefilled));
            // A whole prefill does not fit beside it.
            assert!(decoded == 1 || most == 0, "{most}: {decoded} {prefilled}");
        }
        assert_eq!(found, expected);
        assert_eq!(rows(&mut lab), [1, 1]);
        lab.finish();
    }
}

/// The same between two clients, of which one has a sequence that decodes and the other a long prompt:
/// a client whose forwards all ran owes no rows, so a chunk comes in every step.
#[test]
fn a_long_prompt_of_another_client_passes_over_nobody() {
    let config = EngineConfig { row_budget: 512, long_quantum: 256, ..chunked(32) };
    let mut lab = lab(&config, NEXT);
    let mut first = request(&[20, 21], 60, "autoregressive");
    first.stop_tokens.clear();
    lab.submit(first).expect("there is room");
    rows(&mut lab);
    let mut second = request(&prompt(200), 20, "autoregressive");
    (second.sampling.seed, second.sender.client) = (1, ClientId(1));
    second.stop_tokens.clear();
    lab.submit(second).expect("there is room");
    let found: Vec<[u64; 2]> = (0..8).map(|_| rows(&mut lab)).collect();
    let expected = [vec![[1, 32]; 6], vec![[1, 8], [1, 1]]].concat();
    assert_eq!(found, expected);
    lab.finish();
}

/// A sequence that is cancelled between two chunks gives its pages back, and the prefix cache keeps
/// those that are whole.
#[test]
fn what_a_cancelled_prefill_has_computed_is_cached() {
    for weights in [CAUSAL, BLOCKS] {
        let settings = match weights == CAUSAL {
            true => "wedlm",
            false => "block_causal,block_length=4",
        };
        let mut lab = lab(&chunked(16), weights);
        let asked = |seed| {
            let mut asked = request(&prompt(100), 20, settings);
            asked.sampling.seed = seed;
            asked
        };
        let first = lab.submit(asked(0)).expect("there is room");
        (0..3).for_each(|_| assert!(lab.step()));
        assert_eq!((lab.logs[&first].chunks, lab.logs[&first].forwards), (3, 0));
        assert!(lab.cancel(first));
        let second = lab.submit(asked(1)).expect("there is room");
        lab.finish();
        let outcome = lab.outcome(second).expect("it finishes");
        assert_eq!(outcome.stats.cached_tokens, 48, "three chunks");
        let expected = alone(&asked(1), &model(weights));
        assert_eq!(outcome.tokens, expected.tokens);
        let saved = expected.stats.positions - outcome.stats.positions;
        assert_eq!((outcome.stats.forwards(), saved), (expected.stats.forwards(), 48));
    }
}

/// A failed chunk fails its sequence, and nothing of it is found by the next one.
#[test]
fn a_chunk_that_fails_leaves_nothing() {
    let executor = SimExecutor::new(model(CAUSAL)).expect("a valid model");
    let mut lab = Lab::new(&chunked(16), executor.fail_on([1]));
    let asked = |seed| {
        let mut asked = request(&prompt(100), 20, "wedlm");
        asked.sampling.seed = seed;
        asked
    };
    let first = lab.submit(asked(0)).expect("there is room");
    (0..2).for_each(|_| assert!(lab.step()));
    assert!(matches!(lab.logs[&first].end, Some(End::Failed(_))));
    let second = lab.submit(asked(1)).expect("there is room");
    lab.finish();
    let outcome = lab.outcome(second).expect("it finishes");
    assert_eq!(outcome.stats.cached_tokens, 16, "the chunk before");
    let expected = alone(&asked(1), &model(CAUSAL));
    assert_eq!(outcome.tokens, expected.tokens);
}

/// NFE, the limit on it and the trace count the forward that ends the prefill, and no chunk.
#[test]
fn a_chunk_is_no_step() {
    let mut lab = lab(&chunked(16), CAUSAL);
    let mut asked = request(&prompt(100), 40, "wedlm,max_forwards=3");
    (asked.extras.trace, asked.extras.logprobs) = (true, Some(2));
    let expected = alone(&asked, &model(CAUSAL));
    let id = lab.submit(asked).expect("there is room");
    lab.finish();
    let outcome = lab.outcome(id).expect("it finishes");
    assert_eq!((outcome.stats.forwards(), lab.logs[&id].steps.len()), (3, 3));
    assert_eq!(outcome.stats.passes.prefill, 1);
    assert_eq!(outcome.stats.chunks, 7, "the window is no shorter than a chunk");
    assert!(!outcome.tokens.is_empty());
    assert_eq!(unsplit(outcome), expected);
}

/// Under full attention every row of a prompt sees all others.
#[test]
fn other_prompts_are_whole() {
    for settings in ["balanced", "vanilla"] {
        let weights = (Attention::Full, LogitShift::None);
        let mut lab = lab(&chunked(2), weights);
        let asked = request(&prompt(50), 30, settings);
        let id = lab.submit(asked.clone()).expect("there is room");
        lab.finish();
        let outcome = lab.outcome(id).expect("it finishes");
        assert_eq!(outcome, alone(&asked, &model(weights)), "{settings}");
    }
}
