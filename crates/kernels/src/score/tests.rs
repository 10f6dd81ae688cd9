//! Records compared with plain loops.

mod tops;

use super::{Scorer, ScorerRow, Scores, score};
use crate::gemm::tests::noise;
use candle_core::{Device, Tensor};
use std::ops::Range;
use step::{Bias, Candidate, Sampling, Segment};

const GREEDY: Sampling = Sampling::GREEDY;

/// A segment with temperature 0.
static PLAIN: [Segment; 1] = [drawn(GREEDY)];

const fn drawn(sampling: Sampling) -> Segment {
    Segment { rows: 0..0, pages: 0..0, sampling }
}

fn row(input: u32, biases: Range<u32>) -> ScorerRow {
    ScorerRow { input, position: 0, biases, allowed: None, tops: 0, among: None, segment: 0 }
}

fn add(token: u32, amount: f32) -> Bias {
    let repetition = 1.0;
    Bias { token, repetition, amount }
}

fn run_all(logits: &[f32], vocab: usize, scorer: &Scorer<'_>) -> Result<Scores, String> {
    let shape = (logits.len() / vocab, vocab);
    let logits = Tensor::from_slice(logits, shape, &Device::Cpu).unwrap();
    score(&logits, scorer).map_err(|error| error.to_string())
}

fn run(logits: &[f32], vocab: usize, scorer: &Scorer<'_>) -> Result<Vec<Candidate>, String> {
    run_all(logits, vocab, scorer).map(|scores| scores.candidates)
}

/// The record of one row, computed by sorting and plain sums.
fn naive(logits: &[f32], mask: u32, input: u32) -> Candidate {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let p: Vec<f64> = weights.iter().map(|w| w / total).collect();
    let mut ids: Vec<usize> = (0..logits.len()).filter(|&i| i != mask as usize).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    Candidate {
        token: ids[0] as u32,
        probability: p[ids[0]],
        runner_up: ids[1] as u32,
        runner_up_probability: p[ids[1]],
        entropy: -p.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>() as f32,
        gap: (f64::from(logits[ids[0]]) - f64::from(logits[ids[1]])) as f32,
        present: p[input as usize],
    }
}

fn assert_close(got: &Candidate, want: &Candidate) {
    assert_eq!((got.token, got.runner_up), (want.token, want.runner_up));
    assert_eq!(got.gap, want.gap);
    for (got, want) in [
        (got.probability, want.probability),
        (got.runner_up_probability, want.runner_up_probability),
        (got.present, want.present),
    ] {
        assert!((got - want).abs() <= 1e-13 * want, "{got} for {want}");
    }
    assert!(
        (got.entropy - want.entropy).abs() <= f32::EPSILON * want.entropy,
        "{} for {}",
        got.entropy,
        want.entropy
    );
}

#[test]
fn records_equal_plain_sums() {
    for (vocab, scale) in [(3, 1.0), (31, 8.0), (1024, 3.0), (1000, 30.0), (5003, 12.0)] {
        let mut logits: Vec<f32> = noise(vocab as u64, 9 * vocab);
        logits.iter_mut().for_each(|x| *x *= scale);
        let rows: Vec<_> = (0..9).map(|i| row(i % 3, 0..0)).collect();
        let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &PLAIN, mask: 1 };
        let got = run(&logits, vocab, &scorer).unwrap();
        for (i, logits) in logits.chunks(vocab).enumerate() {
            assert_close(&got[i], &naive(logits, 1, rows[i].input));
        }
    }
}

#[test]
fn ties_go_to_the_lower_id_and_the_mask_is_never_chosen() {
    let mut logits = vec![0.0f32; 600];
    for (id, x) in [(2, 12.0), (300, 5.0), (301, 5.0), (599, 5.0)] {
        logits[id] = x;
    }
    let rows = [row(2, 0..0)];
    let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &PLAIN, mask: 2 };
    let got = run(&logits, 600, &scorer).unwrap()[0];
    assert_eq!((got.token, got.runner_up, got.gap), (300, 301, 0.0));
    // The mask is part of the softmax's denominator.
    assert_close(&got, &naive(&logits, 2, 2));
    assert!(got.present > 0.9 && got.probability < 0.1);
    let above = Scorer { mask: 600, ..scorer };
    assert_eq!(run(&logits, 600, &above).unwrap()[0].token, 2);
}

#[test]
fn biases_act_before_the_softmax() {
    let logits: Vec<f32> = noise(3, 2 * 64);
    let biases = [add(9, 1.0), add(9, f32::NEG_INFINITY), add(4, 20.0)];
    let rows = [row(9, 1..3), row(9, 0..1)];
    let scorer = Scorer { rows: &rows, biases: &biases, allowed: &[], segments: &PLAIN, mask: 0 };
    let got = run(&logits, 64, &scorer).unwrap();
    let mut biased = logits.clone();
    biased[9] = f32::NEG_INFINITY;
    biased[4] += 20.0;
    biased[64 + 9] += 1.0;
    assert_close(&got[0], &naive(&biased[..64], 0, 9));
    assert_close(&got[1], &naive(&biased[64..], 0, 9));
    assert_eq!((got[0].token, got[0].present), (4, 0.0));
}

#[test]
fn probabilities_near_one_keep_their_order() {
    // 1 - p is about 3e-9 and 4e-9: equal in f32, different in f64.
    let logits = [0.0, 19.6, 0.0, 0.0, 19.4, 0.0];
    let rows = [row(0, 0..0), row(0, 0..0)];
    let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &PLAIN, mask: 2 };
    let got = run(&logits, 3, &scorer).unwrap();
    assert!(got[0].probability > got[1].probability);
    assert_eq!(got[0].probability as f32, got[1].probability as f32);
}

#[test]
fn a_sampled_token_has_its_noise_free_probability() {
    let vocab = 50;
    let logits: Vec<f32> = noise(8, vocab).iter().map(|x| 3.0 * x).collect();
    let greedy = naive(&logits, 0, 1);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let draws = [GREEDY, Sampling { temperature: 0.7, seed, ..GREEDY }].map(drawn);
        let rows = [ScorerRow { segment: 1, ..row(1, 0..0) }];
        let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &draws, mask: 0 };
        let got = run(&logits, vocab, &scorer).unwrap()[0];
        assert_ne!(got.token, 0);
        let same = Scorer { rows: &[row(got.token, 0..0)], ..scorer };
        let present = run(&logits, vocab, &same).unwrap()[0].present;
        assert_eq!(got.probability, present);
        let expected = if got.token == greedy.token { greedy.runner_up } else { greedy.token };
        assert_eq!(got.runner_up, expected);
        assert_eq!(got.gap, greedy.gap);
        seen.insert(got.token);
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[test]
fn rows_do_not_change_each_other() {
    let vocab = 1024;
    let logits = noise(4, 300 * vocab);
    let draws = [Sampling { temperature: 1.0, top_p: 0.9, seed: 3, ..GREEDY }].map(drawn);
    let rows: Vec<_> = (0..300).map(|i| ScorerRow { position: i, ..row(0, 0..0) }).collect();
    let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &draws, mask: 5 };
    let all = run(&logits, vocab, &scorer).unwrap();
    for i in [0, 1, 150, 299] {
        let alone = Scorer { rows: &rows[i..=i], ..scorer };
        assert_eq!(run(&logits[i * vocab..(i + 1) * vocab], vocab, &alone).unwrap()[0], all[i]);
    }
}

#[test]
fn a_fully_banned_row_has_probability_zero_and_nan_is_an_error() {
    let banned = [f32::NEG_INFINITY; 8];
    let rows = [row(3, 0..0)];
    let draws = [Sampling { temperature: 1.0, ..GREEDY }].map(drawn);
    let scorer = Scorer { rows: &rows, biases: &[], allowed: &[], segments: &draws, mask: 0 };
    let got = run(&banned, 8, &scorer).unwrap()[0];
    assert_eq!((got.token, got.probability, got.gap, got.entropy), (1, 0.0, 0.0, 0.0));
    for bad in [f32::NAN, f32::INFINITY] {
        let mut logits = [0.0; 8];
        logits[6] = bad;
        assert!(run(&logits, 8, &scorer).unwrap_err().contains("scored row 0 are not finite"));
    }
    let far = [add(8, 1.0)];
    let error = run(&[0.0; 8], 8, &Scorer { biases: &far, ..scorer }).unwrap_err();
    assert!(error.contains("bias for token 8 of 8"), "{error}");
}
