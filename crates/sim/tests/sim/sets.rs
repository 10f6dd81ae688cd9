//! Allowed sets and most probable tokens through the executor.

use crate::common::{batch, config, executor, pages, rows, run};
use asynclane_sim::{Fidelity, SimConfig, SimExecutor};
use step::{Batch, BatchOutput, Executor, Sampling, Score, TokenId, set_words};

/// Words of a set.
fn set(tokens: impl IntoIterator<Item = TokenId>) -> Vec<u32> {
    let mut words = vec![0; set_words(config().vocab_size)];
    for token in tokens {
        words[token as usize / 32] |= 1 << (token % 32);
    }
    words
}

/// Four known positions, then four masked ones with these scores.
fn asking(scores: [Score; 4]) -> Batch {
    let mask = config().mask;
    let tokens = [20, 21, 22, 23, mask, mask, mask, mask];
    let mut batch = batch(rows(&tokens, 0, 8), &pages([0, 1]));
    for (row, score) in batch.rows[4..].iter_mut().zip(scores) {
        row.score = score;
    }
    batch.rows[..4].iter_mut().for_each(|row| row.score = Score::None);
    batch
}

fn output(executor: &mut SimExecutor, batch: &Batch) -> BatchOutput {
    let mut output = BatchOutput::default();
    executor.execute(batch, &mut output).unwrap();
    output
}

#[test]
fn tops_come_in_row_order_and_change_no_candidate() {
    let scores = [Score::Top(3), Score::Candidate, Score::Top(255), Score::Top(1)];
    let some = output(&mut executor(), &asking(scores));
    let none = output(&mut executor(), &asking([Score::Candidate; 4]));
    assert_eq!(some.candidates, none.candidates);
    assert_eq!((some.tops.len(), none.tops.len()), (259, 0));
    for (row, first) in [(0, 0), (2, 3), (3, 258)] {
        let (candidate, top) = (some.candidates[row], some.tops[first]);
        assert_eq!(top.token, candidate.token);
        assert!((f64::from(top.logprob) - candidate.probability.ln()).abs() < 1e-6);
    }
    let (second, candidate) = (some.tops[1], some.candidates[0]);
    assert_eq!(second.token, candidate.runner_up);
    // Behind the few tokens with their own logit the others follow by id.
    let tail = &some.tops[3 + 8..258];
    assert!(tail.is_sorted_by(|a, b| a.token < b.token && a.logprob == b.logprob));
    assert!(some.tops.iter().all(|top| top.token != config().mask));
}

#[test]
fn a_set_bounds_candidates_runner_ups_tops_and_draws() {
    let allowed: Vec<TokenId> = (0..512).filter(|token| token % 37 == 5).collect();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut batch = asking([Score::Top(20); 4]);
        batch.allowed = [set([]), set(allowed.iter().copied())].concat();
        batch.rows[5].allowed = Some(1);
        batch.segments[0].sampling = Sampling { temperature: 1.0, seed, ..Sampling::GREEDY };
        let output = output(&mut executor(), &batch);
        let candidate = output.candidates[1];
        assert!(allowed.contains(&candidate.token) && allowed.contains(&candidate.runner_up));
        assert_eq!(candidate.present, 0.0);
        let tops = &output.tops[20..40];
        let listed = tops[..allowed.len()].iter().map(|top| top.token);
        assert_eq!(
            listed.collect::<std::collections::BTreeSet<_>>(),
            allowed.iter().copied().collect()
        );
        let total: f64 = tops.iter().map(|top| f64::from(top.logprob).exp()).sum();
        assert!((total - 1.0).abs() < 1e-5, "{total}");
        assert_eq!(tops[allowed.len()].logprob, f32::NEG_INFINITY);
        seen.insert(candidate.token);
    }
    // All of them are about equally likely: none is the hidden token.
    assert_eq!(seen.len(), allowed.len());
}

#[test]
fn a_set_of_everything_changes_nothing_and_rows_have_their_own() {
    let plain = output(&mut executor(), &asking([Score::Top(4); 4]));
    let mut batch = asking([Score::Top(4); 4]);
    batch.allowed = [vec![u32::MAX; 16], set([77])].concat();
    batch.rows[4].allowed = Some(0);
    batch.rows[6].allowed = Some(1);
    let some = output(&mut executor(), &batch);
    for row in [0, 1, 3] {
        assert_eq!(some.candidates[row], plain.candidates[row]);
        let tops = 4 * row..4 * row + 4;
        assert_eq!(some.tops[tops.clone()], plain.tops[tops]);
    }
    let only = some.candidates[2];
    assert_eq!((only.token, only.probability, only.entropy), (77, 1.0, 0.0));
    assert_eq!((some.tops[8].token, some.tops[8].logprob), (77, 0.0));
}

#[test]
fn free_executors_know_sets_and_tops_too() {
    let mut executor =
        SimExecutor::new(SimConfig { fidelity: Fidelity::Free, ..config() }).unwrap();
    let mut batch = asking([Score::Top(2); 4]);
    batch.allowed = set(300..310);
    batch.rows[7].allowed = Some(0);
    let output = output(&mut executor, &batch);
    assert_eq!(output.tops.len(), 8);
    assert_eq!((output.tops[6].token, output.tops[7].token), (300, 301));
    assert!((output.candidates[3].probability - 0.1).abs() < 1e-9);
}

#[test]
fn a_failed_pass_leaves_no_tops() {
    let mut executor = executor();
    let mut batch = asking([Score::Top(2); 4]);
    let mut output = output(&mut executor, &batch);
    assert_eq!(output.tops.len(), 8);
    batch.allowed = set([config().mask]);
    batch.rows[7].allowed = Some(0);
    assert!(executor.execute(&batch, &mut output).is_err());
    assert_eq!(output, BatchOutput::default());
    batch.rows[7].allowed = None;
    batch.rows[7].score = Score::Top(2);
    assert_eq!(run(&mut executor, &batch).unwrap().len(), 4);
}

#[test]
fn more_tops_than_tokens_are_refused() {
    let mut executor = SimExecutor::new(SimConfig { vocab_size: 32, ..config() }).unwrap();
    let most = output(&mut executor, &asking([Score::Top(31); 4]));
    assert!(most.tops.iter().all(|top| top.logprob > f32::NEG_INFINITY));
    let error = executor
        .execute(&asking([Score::Top(32); 4]), &mut BatchOutput::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("31 tokens other than the mask"), "{error}");
}

#[test]
fn the_tokens_of_a_set_are_listed_with_their_probabilities_among_all() {
    let all = output(&mut executor(), &asking([Score::Top(255); 4]));
    let best = all.candidates[1].token;
    let mut labelled = asking([Score::Among { set: 1, count: 4 }; 4]);
    let labels = [best, 40, 41, config().mask];
    labelled.allowed = [set([]), set(labels)].concat();
    let found = output(&mut executor(), &labelled);
    assert_eq!(found.candidates, all.candidates);
    assert_eq!(found.tops.len(), 16);
    assert_eq!(found.tops[4], all.tops[255]);
    for listed in found.tops.chunks(4) {
        let mut tokens: Vec<TokenId> = listed[..3].iter().map(|top| top.token).collect();
        tokens.sort_unstable();
        assert!(tokens.iter().all(|token| labels[..3].contains(token)), "{tokens:?}");
        assert!(listed[..3].is_sorted_by(|a, b| a.logprob >= b.logprob));
        assert_eq!(listed[3].logprob, f32::NEG_INFINITY);
    }
    labelled.rows[4].score = Score::Among { set: 2, count: 4 };
    assert!(executor().execute(&labelled, &mut BatchOutput::default()).is_err());
}
