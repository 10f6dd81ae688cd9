//! Allowed sets, repetition and most probable tokens, compared with sorting and plain sums.

use super::{GREEDY, PLAIN, add, drawn, naive, noise, row, run, run_all};
use crate::score::{Scorer, ScorerRow};
use step::{Bias, Candidate, Sampling, Segment, TopToken};

const BANNED: f32 = f32::NEG_INFINITY;

/// A scorer of `rows` without biases and sets; the mask is token 1.
fn plain<'a>(rows: &'a [ScorerRow], segments: &'a [Segment]) -> Scorer<'a> {
    Scorer { rows, biases: &[], allowed: &[], segments, mask: 1 }
}

fn wanting(tops: u32) -> ScorerRow {
    ScorerRow { tops, ..row(0, 0..0) }
}

/// Logits with many ties and bans.
fn rough(seed: u64, vocab: usize, scale: f32) -> Vec<f32> {
    let noise = noise(seed, 2 * vocab);
    let (values, fates) = noise.split_at(vocab);
    let steps = values.iter().map(|x| (x * scale).round() / 2.0);
    steps.zip(fates).map(|(x, &fate)| if fate > 0.7 { BANNED } else { x }).collect()
}

/// The words of the set of tokens that pass `test`.
fn set(vocab: usize, test: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut words = vec![0; vocab.div_ceil(32)];
    (0..vocab)
        .filter(|&token| test(token))
        .for_each(|token| words[token / 32] |= 1 << (token % 32));
    words
}

/// The most probable tokens, computed by sorting all tokens.
fn sorted(logits: &[f32], mask: usize, count: usize) -> Vec<TopToken> {
    let max = logits.iter().copied().fold(BANNED, f32::max);
    let total: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    let mut ids: Vec<usize> =
        (0..logits.len()).filter(|&i| i != mask && logits[i] > BANNED).collect();
    // The sort is stable: ties, including 0 and -0, keep the order of ids.
    ids.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).expect("no logit is NaN"));
    let tops = ids.iter().map(|&id| TopToken {
        token: id as u32,
        logprob: (f64::from(logits[id] - max) - total.ln()) as f32,
    });
    tops.take(count).collect()
}

fn assert_tops(got: &[TopToken], want: &[TopToken], count: usize, mask: u32) {
    assert_eq!(got.len(), count);
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.token, want.token);
        let error = (got.logprob - want.logprob).abs();
        assert!(error <= f32::EPSILON * want.logprob.abs(), "{got:?} for {want:?}");
    }
    for rest in &got[want.len().min(count)..] {
        assert_eq!(rest.logprob, f32::NEG_INFINITY);
        assert_ne!(rest.token, mask);
    }
}

#[test]
fn tops_equal_a_sort_with_ties_bans_and_any_count() {
    for (vocab, scale) in [(3, 2.0), (31, 9.0), (256, 4.0), (1000, 30.0), (5003, 300.0)] {
        let logits: Vec<f32> = (0..12).flat_map(|seed| rough(seed, vocab, scale)).collect();
        let counts = [0, 1, 2, 3, 20, 300].map(|count: u32| count.min(vocab as u32 - 1));
        let rows: Vec<_> = (0..12).map(|i| wanting(counts[i % 6])).collect();
        let scores = run_all(&logits, vocab, &plain(&rows, &PLAIN)).unwrap();
        let mut tops = &scores.tops[..];
        for (row, logits) in rows.iter().zip(logits.chunks(vocab)) {
            let (own, rest) = tops.split_at(row.tops as usize);
            assert_tops(own, &sorted(logits, 1, own.len()), own.len(), 1);
            tops = rest;
        }
        assert_eq!(tops, []);
    }
}

#[test]
fn the_first_tops_are_token_and_runner_up_at_temperature_zero() {
    let vocab = 700;
    let logits: Vec<f32> = noise(5, vocab).iter().map(|x| 6.0 * x).collect();
    let scores = run_all(&logits, vocab, &plain(&[wanting(2)], &PLAIN)).unwrap();
    let (record, tops) = (scores.candidates[0], &scores.tops);
    assert_eq!((record.token, record.runner_up), (tops[0].token, tops[1].token));
    assert!((record.probability.ln() as f32 - tops[0].logprob).abs() < 1e-6);
    assert!((record.runner_up_probability.ln() as f32 - tops[1].logprob).abs() < 1e-5);
}

#[test]
fn a_log_probability_does_not_underflow() {
    let logits = [0.0, 0.0, -2000.0, -3000.0];
    let scores = run_all(&logits, 4, &plain(&[wanting(3)], &PLAIN)).unwrap();
    let logs: Vec<_> = scores.tops.iter().map(|top| top.logprob).collect();
    let half = 2f64.ln();
    let want = [-half, -2000.0 - half, -3000.0 - half];
    assert_eq!(logs, want.map(|log| log as f32));
    assert_eq!(scores.candidates[0].runner_up_probability, 0.0);
}

#[test]
fn a_set_bans_all_tokens_outside_it() {
    for vocab in [3, 31, 64, 65, 1000] {
        let logits: Vec<f32> = noise(vocab as u64, vocab).iter().map(|x| 5.0 * x).collect();
        let sets = [
            set(vocab, |t| t % 3 != 1),
            set(vocab, |t| t / 32 % 2 == 0 || t % 5 == 0),
            set(vocab, |t| t == vocab - 1 || t == 0),
            vec![u32::MAX; vocab.div_ceil(32)],
        ];
        let words = sets.concat();
        let draws = [GREEDY, Sampling { temperature: 1.5, top_k: 7, ..GREEDY }].map(drawn);
        let biases = [add(0, 0.75), add(1, 3.0)];
        for (number, set) in sets.iter().enumerate() {
            let outside = |token: &u32| set[*token as usize / 32] >> (token % 32) & 1 == 0;
            let bans: Vec<_> = (0..vocab as u32).filter(outside).collect();
            let all = [&biases[..], &bans.iter().map(|&t| add(t, BANNED)).collect::<Vec<_>>()];
            let all = all.concat();
            for draw in [0, 1] {
                let scored = ScorerRow {
                    tops: (vocab as u32 - 1).min(20),
                    segment: draw,
                    ..row(2, 0..all.len() as u32)
                };
                let rows = [scored.clone()];
                let banned = Scorer { biases: &all, ..plain(&rows, &draws) };
                let rows = [ScorerRow { biases: 0..2, allowed: Some(number as u32), ..scored }];
                let restricted =
                    Scorer { biases: &biases, allowed: &words, ..plain(&rows, &draws) };
                assert_eq!(
                    run_all(&logits, vocab, &restricted).unwrap(),
                    run_all(&logits, vocab, &banned).unwrap(),
                    "set {number} of {vocab} tokens"
                );
            }
        }
    }
}

#[test]
fn draws_stay_within_the_set() {
    let vocab = 200;
    let logits = noise(2, vocab);
    let words = set(vocab, |t| t % 7 == 3);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let draws = [Sampling { temperature: 2.0, seed, ..GREEDY }].map(drawn);
        let rows = [ScorerRow { allowed: Some(0), ..row(0, 0..0) }];
        let scorer = Scorer { allowed: &words, ..plain(&rows, &draws) };
        let got = run(&logits, vocab, &scorer).unwrap()[0];
        assert_eq!((got.token % 7, got.runner_up % 7), (3, 3));
        seen.insert(got.token);
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn an_empty_set_yields_a_record_with_probability_zero() {
    for mask in [0, 1, 9] {
        let rows = [ScorerRow { allowed: Some(1), ..wanting(3) }];
        let scorer = Scorer { allowed: &[u32::MAX, 0], mask, ..plain(&rows, &PLAIN) };
        let scores = run_all(&[1.0; 8], 8, &scorer).unwrap();
        let record = scores.candidates[0];
        assert_eq!((record.probability, record.runner_up_probability), (0.0, 0.0));
        assert!(record.token != mask && record.entropy == 0.0);
        assert_tops(&scores.tops, &[], 3, mask);
    }
}

#[test]
fn a_set_may_contain_only_the_mask() {
    let rows = [ScorerRow { allowed: Some(0), ..wanting(2) }];
    let scorer = Scorer { allowed: &[0b10], ..plain(&rows, &PLAIN) };
    let scores = run_all(&[1.0; 8], 8, &scorer).unwrap();
    assert_eq!(scores.candidates[0].probability, 0.0);
    assert_tops(&scores.tops, &[], 2, 1);
}

#[test]
fn repetition_divides_positive_logits_and_multiplies_others() {
    let logits = [3.0, 0.0, -2.0, 0.5, BANNED, 1.0];
    let repeated = |token, repetition, amount| Bias { token, repetition, amount };
    let biases = [
        repeated(0, 1.5, 0.25),
        repeated(1, 1.5, -1.0),
        repeated(2, 1.5, 0.5),
        repeated(3, 0.5, 0.0),
        repeated(4, 2.0, 50.0),
        // In order: 1 - 3 = -2, then -2 * 2 = -4.
        repeated(5, 1.0, -3.0),
        repeated(5, 2.0, 0.0),
    ];
    let rows = [ScorerRow { tops: 4, ..row(5, 0..7) }];
    let scorer = Scorer { biases: &biases, mask: 6, ..plain(&rows, &PLAIN) };
    let scores = run_all(&logits, 6, &scorer).unwrap();
    let changed = [2.25, -1.0, -2.5, 1.0, BANNED, -4.0];
    let record: Candidate = scores.candidates[0];
    assert_eq!((record.token, record.gap), (0, 1.25));
    let want = sorted(&changed, 6, 4);
    assert_tops(&scores.tops, &want, 4, 6);
    // The reference also works with a mask outside the vocabulary.
    assert!((record.present - naive(&changed, 6, 5).present).abs() < 1e-13);
}

#[test]
fn the_tops_of_other_rows_change_no_record() {
    let vocab = 300;
    let logits = noise(6, 4 * vocab);
    let words = set(vocab, |t| t % 2 == 0);
    let hot = Sampling { temperature: 0.9, top_p: 0.8, seed: 4, ..GREEDY };
    let draws = [drawn(hot)];
    let scored = |tops, allowed| ScorerRow { tops, allowed, ..row(3, 0..0) };
    let rows = [scored(0, None), scored(5, Some(0)), scored(20, None), scored(0, Some(0))];
    let scorer = Scorer { allowed: &words, ..plain(&rows, &draws) };
    let together = run_all(&logits, vocab, &scorer).unwrap();
    let mut start = 0;
    for (i, logits) in logits.chunks(vocab).enumerate() {
        let count = rows[i].tops as usize;
        let alone = Scorer { rows: &rows[i..=i], ..scorer };
        let alone = run_all(logits, vocab, &alone).unwrap();
        assert_eq!(alone.candidates[0], together.candidates[i]);
        assert_eq!(alone.tops, together.tops[start..start + count]);
        let without = [ScorerRow { tops: 0, ..rows[i].clone() }];
        let without = Scorer { rows: &without, ..scorer };
        let records = run(logits, vocab, &without).unwrap();
        assert_eq!(records[0], together.candidates[i]);
        start += count;
    }
}

#[test]
fn sets_and_counts_out_of_range_are_errors() {
    let error = |row: ScorerRow| {
        let rows = [row];
        let scorer = Scorer { allowed: &[0, 0, 0], ..plain(&rows, &PLAIN) };
        run_all(&[0.0; 40], 40, &scorer).unwrap_err()
    };
    let far = ScorerRow { allowed: Some(1), ..row(0, 0..0) };
    assert!(error(far).contains("allowed set 1 of 1"));
    assert!(error(wanting(40)).contains("40 tops of 39 tokens"));
}

#[test]
fn a_set_is_listed_and_bans_nothing() {
    for (vocab, scale) in [(40, 2.0), (256, 4.0), (1000, 30.0)] {
        let logits = rough(7, vocab, scale);
        let listed = |token: usize| token % 5 < 2;
        let allowed = set(vocab, listed);
        let count = vocab as u32 - 1;
        let rows = [ScorerRow { among: Some(0), ..wanting(count) }, wanting(count)];
        let scorer = Scorer { allowed: &allowed, ..plain(&rows, &PLAIN) };
        let twice = [&logits[..], &logits[..]].concat();
        let scores = run_all(&twice, vocab, &scorer).unwrap();
        assert_eq!(scores.candidates[0], scores.candidates[1]);
        let (own, all) = scores.tops.split_at(count as usize);
        let possible = |top: &&TopToken| top.logprob > BANNED && listed(top.token as usize);
        let want: Vec<TopToken> = all.iter().filter(possible).copied().collect();
        assert!(want.len() > 3);
        assert_tops(own, &want, count as usize, 1);
        assert_eq!(own[..want.len()], want);
    }
}
