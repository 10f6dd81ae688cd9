//! The executor's contract: limits, biases, sampling, errors.

use crate::common::{Tiny, execute, push, row, single};
use asynclane_model::{ExecutorConfig, ModelExecutor};
use serde_json::json;
use std::cell::Cell;
use step::{
    Batch, BatchOutput, Bias, Candidate, Executor, PageCopy, PageId, Position, Row, Sampling,
    Score, Slot, TopToken,
};

fn tiny() -> Tiny {
    Tiny::new(11, &json!({"vocab_size": 61, "embedding_size": 64}))
}

#[test]
fn the_spec_follows_configuration_and_model() {
    let executor = tiny().executor(6, 1);
    let spec = executor.spec();
    assert_eq!((spec.page_size, spec.pages), (8, 6));
    let sizes = (spec.vocab_size, spec.max_positions, spec.mask);
    assert_eq!(sizes, (61, 256, Some(5)));
    for (page_size, pages) in [(0, 4), (4, 0), (1 << 16, 1 << 16)] {
        let config = ExecutorConfig { page_size, pages, threads: None };
        let error = ModelExecutor::new(tiny().model(), config).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains("KV slots"), "{error}");
    }
}

#[test]
fn an_empty_batch_has_no_output() {
    let mut executor = tiny().executor(2, 1);
    let mut output = BatchOutput::default();
    let batch = single(vec![row(1, 0, 1)], &[0]);
    executor.execute(&batch, &mut output).unwrap();
    assert_eq!(output.candidates.len(), 1);
    executor.execute(&Batch::default(), &mut output).unwrap();
    assert_eq!(output.candidates, []);
}

#[test]
fn every_layer_of_a_pass_is_progress() {
    let mut executor = tiny().executor(2, 1);
    let layers = executor.model().info().layers;
    let batch = single(vec![row(1, 0, 1)], &[0]);
    let mut output = BatchOutput::default();
    let count = Cell::new(0);
    let goes_on = || {
        count.set(count.get() + 1);
        true
    };
    executor.execute_while(&batch, &mut output, &goes_on).unwrap();
    assert_eq!(count.get(), layers);
    let whole = output.candidates.clone();
    let error = executor.execute_while(&batch, &mut output, &|| false).unwrap_err();
    assert_eq!(error.to_string(), "forward pass failed: given up");
    executor.execute(&batch, &mut output).unwrap();
    assert_eq!(output.candidates, whole);
}

/// A change of a batch with one row, for each line of [`FAULTS`].
const CHANGES: [fn(&mut Batch); 14] = [
    |batch| batch.rows[0].token = 64,
    |batch| batch.rows[0].position = Position::new(256),
    |batch| batch.rows[0].slot = Slot::new(16),
    |batch| batch.rows[0].visible_end = Slot::new(17),
    |batch| batch.rows[0].beyond = 1 << 15,
    |batch| batch.rows[0].biases = 0..3,
    |batch| batch.rows[0].biases = 0..1,
    |batch| batch.rows[0].biases = 1..2,
    |batch| batch.rows[0].allowed = Some(1),
    |batch| batch.rows[0].score = Score::Among { set: 1, count: 2 },
    |batch| batch.rows[0].score = Score::Top(61),
    |batch| batch.pages[1] = PageId(4),
    |batch| batch.allowed = vec![0],
    |batch| batch.rows.push(row(1, 0, 1)),
];
const FAULTS: &str = "\
row 0: token 64 of 64
row 0: position 256 of 256
row 0: slot 16, 1 visible, of 16 slots
row 0: slot 0, 17 visible, of 16 slots
row 0: slot 0, 17 visible, of 16 slots
row 0: biases 0..3 of 2
row 0: bias for token 61 of 61
row 0: repetition 0 of token 3, expected a positive number
row 0: allowed set 1 of 1
row 0: allowed set 1 of 1
row 0: 61 most probable tokens of 60
page 4 of 4
allowed sets of 1 words, expected a multiple of 2
segments end at row 1 of 2";

#[test]
fn indices_out_of_bounds_are_errors_and_the_next_batch_works() {
    let mut executor = tiny().executor(4, 1);
    let mut output = BatchOutput::default();
    assert_eq!(FAULTS.lines().count(), CHANGES.len());
    for (change, fault) in CHANGES.iter().zip(FAULTS.lines()) {
        let mut batch = single(vec![row(1, 0, 1)], &[2, 3]);
        let penalty = Bias { repetition: 0.0, ..Bias::add(3, 1.0) };
        batch.biases = vec![Bias::add(61, 1.0), penalty];
        batch.allowed = vec![u32::MAX; 2];
        change(&mut batch);
        let error = executor.execute(&batch, &mut output).unwrap_err();
        assert_eq!(error.to_string(), format!("forward pass failed: {fault}"));
    }
    let mut batch = Batch::default();
    batch.copies.push(PageCopy { source: PageId(9), destination: PageId(0) });
    assert!(executor.execute(&batch, &mut output).is_err());
    let batch = single(vec![row(1, 0, 1)], &[0]);
    executor.execute(&batch, &mut output).unwrap();
}

#[test]
fn tokens_beyond_the_vocabulary_are_inputs_and_never_candidates() {
    let mut executor = tiny().executor(4, 1);
    let rows = (0..20).map(|i| row(61 + i % 3, i, 20)).collect();
    let mut batch = single(rows, &[1, 2, 3]);
    batch.segments[0].sampling.temperature = 2.0;
    for candidate in execute(&mut executor, &batch).candidates {
        assert!(candidate.token < 61 && candidate.token != 5);
        assert!(candidate.runner_up < 61 && candidate.runner_up != candidate.token);
        assert_eq!(candidate.present, 0.0);
    }
}

#[test]
fn a_ban_moves_the_argmax_and_raises_the_rest() {
    let mut executor = tiny().executor(1, 1);
    let mut second = row(1, 0, 1);
    second.slot = Slot::new(1);
    let mut batch = single(vec![row(1, 0, 1), second], &[0]);
    let plain = execute(&mut executor, &batch).candidates[0];
    batch.biases.push(Bias::ban(plain.token));
    batch.rows[0].biases = 0..1;
    let output = execute(&mut executor, &batch);
    let (banned, free) = (output.candidates[0], output.candidates[1]);
    assert_eq!(free, plain);
    assert_eq!(banned.token, plain.runner_up);
    let expected = plain.runner_up_probability / (1.0 - plain.probability);
    assert!((banned.probability - expected).abs() < 1e-9);
}

/// A row at `position` on the first page with this score and set of allowed tokens.
fn asking(position: u32, score: Score, allowed: Option<u32>) -> Row {
    Row { score, allowed, ..row(5, position, 8) }
}

#[test]
fn tops_are_listed_for_the_rows_that_request_them() {
    let mut executor = tiny().executor(1, 1);
    let wanted = [3, 0, 60, 1, 0, 20, 2, 8].map(|count| match count {
        0 => Score::Candidate,
        count => Score::Top(count),
    });
    let run = |executor: &mut ModelExecutor, scores: [Score; 8]| {
        let rows = (0..).zip(scores).map(|(i, score)| asking(i, score, None));
        let batch = single(rows.collect(), &[0]);
        execute(executor, &batch)
    };
    let output = run(&mut executor, wanted);
    let plain = run(&mut executor, [Score::Candidate; 8]);
    assert_eq!(output.candidates, plain.candidates);
    assert_eq!(plain.tops, []);
    let mut tops = &output.tops[..];
    for (score, candidate) in wanted.iter().zip(&output.candidates) {
        let (own, rest) = tops.split_at(score.tops());
        check_tops(own, candidate);
        tops = rest;
    }
    assert_eq!(tops, []);
    // The tops are all tokens except the mask; with the mask's probability they sum to one.
    let all: f64 = output.tops[3..63].iter().map(probability).sum();
    assert!((all + output.candidates[2].present - 1.0).abs() < 1e-6);
}

fn probability(top: &TopToken) -> f64 {
    f64::from(top.logprob).exp()
}

/// Checks that tops are distinct tokens in descending probability and start with the tokens of a
/// greedy candidate.
fn check_tops(tops: &[TopToken], candidate: &Candidate) {
    assert!(tops.is_sorted_by(|a, b| a.logprob >= b.logprob));
    let tokens: std::collections::BTreeSet<_> = tops.iter().map(|top| top.token).collect();
    assert!(tokens.len() == tops.len() && !tokens.contains(&5));
    let firsts = [
        (candidate.token, candidate.probability),
        (candidate.runner_up, candidate.runner_up_probability),
    ];
    for (top, (token, expected)) in tops.iter().zip(firsts) {
        assert_eq!(top.token, token);
        assert!((f64::from(top.logprob) - expected.ln()).abs() < 1e-6);
    }
}

#[test]
fn each_row_is_restricted_to_its_own_allowed_set() {
    let mut executor = tiny().executor(1, 1);
    let mut batch = Batch::default();
    let hot = Sampling { temperature: 3.0, seed: 2, ..Sampling::GREEDY };
    // Tokens 8..12 (and one beyond the vocabulary), none, all.
    batch.allowed = vec![0xF00, 1 << 31, 0, 0, u32::MAX, u32::MAX];
    let sets = [Some(0), Some(1), Some(2), None, Some(0)];
    let rows = (0..).zip(sets);
    let rows = rows.map(|(i, set)| asking(i, Score::Top(6), set)).collect();
    push(&mut batch, rows, &[0], hot);
    let restricted = execute(&mut executor, &batch);
    for i in [0, 4] {
        let candidate = restricted.candidates[i];
        assert!((8..12).contains(&candidate.token) && (8..12).contains(&candidate.runner_up));
        assert_eq!(candidate.present, 0.0);
        let tops = &restricted.tops[6 * i..6 * i + 6];
        assert!(tops[..4].iter().all(|top| (8..12).contains(&top.token)));
        let total: f64 = tops.iter().map(probability).sum();
        assert!((total - 1.0).abs() < 1e-6);
        assert_eq!(tops[4].logprob, f32::NEG_INFINITY);
    }
    let nothing = restricted.candidates[1];
    assert_eq!((nothing.probability, nothing.entropy), (0.0, 0.0));
    // The set of all tokens has the same result as no set.
    batch.rows.iter_mut().for_each(|row| row.allowed = None);
    let free = execute(&mut executor, &batch);
    assert_eq!(free.candidates[2..4], restricted.candidates[2..4]);
    assert_eq!(free.tops[12..24], restricted.tops[12..24]);
}

#[test]
fn a_repetition_penalty_lowers_a_probability() {
    let mut executor = tiny().executor(1, 1);
    let rows = (0..8).map(|i| asking(i, Score::Top(60), None));
    let mut batch = single(rows.collect(), &[0]);
    let plain = execute(&mut executor, &batch);
    // The most probable token's logit is positive, the least probable one's is not.
    for token in [plain.tops[0].token, plain.tops[59].token] {
        batch.biases = vec![Bias { token, repetition: 2.0, amount: 0.0 }];
        batch.rows[0].biases = 0..1;
        let penalised = execute(&mut executor, &batch);
        let log = |output: &BatchOutput| {
            let top = output.tops[..60].iter().find(|top| top.token == token);
            top.expect("all tokens are listed").logprob
        };
        assert!(log(&penalised) < log(&plain), "token {token}");
        assert_eq!(penalised.candidates[1..], plain.candidates[1..]);
    }
}

#[test]
fn noise_is_a_function_of_seed_clock_and_position() {
    let mut executor = tiny().executor(8, 2);
    let mut draw = |seed, clock, position: u32, pages: &[u32]| {
        let mut batch = Batch::default();
        let sampling = Sampling { temperature: 5.0, seed, clock, ..Sampling::GREEDY };
        let rows = (0..16).map(|i| Row { slot: Slot::new(i), ..row(5, position + i, 16) });
        push(&mut batch, rows.collect(), pages, sampling);
        let candidates = execute(&mut executor, &batch).candidates;
        candidates.iter().map(|c| c.token).collect::<Vec<_>>()
    };
    let first = draw(1, 2, 3, &[0, 1]);
    assert_eq!(draw(1, 2, 3, &[5, 2]), first);
    assert_ne!(draw(2, 2, 3, &[0, 1]), first);
    assert_ne!(draw(1, 3, 3, &[0, 1]), first);
    assert_ne!(draw(1, 2, 40, &[0, 1]), first);
}

#[test]
fn temperature_zero_ignores_seed_and_filters() {
    let mut executor = tiny().executor(2, 1);
    let mut run = |sampling| {
        let mut batch = single((0..9).map(|i| row(5, i, 9)).collect(), &[0, 1]);
        batch.segments[0].sampling = sampling;
        execute(&mut executor, &batch)
    };
    let greedy = run(Sampling::GREEDY);
    let other = Sampling { seed: 9, clock: 4, top_k: 1, top_p: 0.1, ..Sampling::GREEDY };
    assert_eq!(run(other), greedy);
    let one = Sampling { temperature: 1.5, seed: 9, top_k: 1, ..Sampling::GREEDY };
    assert_eq!(run(one), greedy);
}

#[test]
fn logits_checks_its_tokens_and_does_not_use_the_pool() {
    let mut executor = tiny().executor(1, 1);
    execute(&mut executor, &single(vec![row(9, 0, 1)], &[0]));
    let next = single(vec![row(8, 1, 2)], &[0]);
    let before = execute(&mut executor, &next);
    assert_eq!(executor.logits(&[4, 5, 6]).unwrap().len(), 3 * 61);
    assert_eq!(execute(&mut executor, &next), before);
    let error = |tokens: &[u32]| executor.logits(tokens).unwrap_err().to_string();
    for (tokens, expected) in [
        (&[][..], "0 tokens, expected 1..=256"),
        (&[64], "token 64 of 64"),
        (&[0; 257], "257 tokens, expected 1..=256"),
    ] {
        assert_eq!(error(tokens), format!("forward pass failed: {expected}"));
    }
}
