//! Sparse distributions against dense ones that hold every logit.

use std::collections::BTreeSet;

use step::{Bias, Position, Sampling, TokenId, set_words};

use super::Distribution;
use crate::hash::{mix, unit};

const VOCAB: u32 = 70;
const MASK: TokenId = 3;
const HOT: Sampling = Sampling { temperature: 2.0, ..Sampling::GREEDY };

/// One case: what a row proposes, its biases and its set.
struct Case {
    logits: Vec<(TokenId, f64)>,
    tail: f64,
    biases: Vec<Bias>,
    set: Option<Vec<u32>>,
}

impl Case {
    /// Random ones, with ties, bans, repetition and sets of every density.
    fn random(seed: u64) -> Self {
        let number = |word: u64| unit(mix(seed, word));
        let token = |word: u64| (number(word) * f64::from(VOCAB)) as u32;
        let mut logits: Vec<(TokenId, f64)> = Vec::new();
        for word in 0..4 {
            let token = token(word);
            if token != MASK && logits.iter().all(|own| own.0 != token) {
                logits.push((token, (number(10 + word) * 8.0).round() / 2.0 - 1.0));
            }
        }
        let biases = (20..25).map(|word| Bias {
            token: token(word),
            repetition: [1.0, 1.0, 1.5, 0.5][(number(word + 10) * 4.0) as usize],
            amount: [0.0, 2.0, -300.0, f32::NEG_INFINITY][(number(word + 20) * 4.0) as usize],
        });
        let density = [0.0, 0.03, 0.3, 0.97][(seed % 4) as usize];
        let mut words = vec![0; set_words(VOCAB)];
        // Bits beyond the vocabulary mean nothing.
        words[2] = 0xFFFF_FF00;
        for token in 0..VOCAB {
            if number(100 + u64::from(token)) < density {
                words[token as usize / 32] |= 1 << (token % 32);
            }
        }
        Self {
            tail: 3.0 * number(50) - 4.0,
            biases: biases.collect(),
            set: (density > 0.0).then_some(words),
            logits,
        }
    }

    fn sparse(&self) -> Distribution<'_> {
        let mut sparse = Distribution::new(self.logits.clone(), self.tail, VOCAB, MASK);
        self.biases.iter().for_each(|&bias| sparse.bias(bias));
        if let Some(words) = &self.set {
            sparse.restrict(words);
        }
        sparse
    }

    /// Every token's logit.
    fn dense(&self) -> Vec<f64> {
        let mut dense = vec![self.tail - f64::from(VOCAB).ln(); VOCAB as usize];
        for &(token, logit) in &self.logits {
            dense[token as usize] = logit;
        }
        dense[MASK as usize] = f64::NEG_INFINITY;
        for bias in &self.biases {
            let logit = &mut dense[bias.token as usize];
            let repetition = f64::from(bias.repetition);
            if *logit > 0.0 {
                *logit /= repetition;
            } else {
                *logit *= repetition;
            }
            *logit += f64::from(bias.amount);
        }
        for (token, logit) in dense.iter_mut().enumerate() {
            let inside = |words: &Vec<u32>| words[token / 32] >> (token % 32) & 1 == 1;
            if !self.set.as_ref().is_none_or(inside) {
                *logit = f64::NEG_INFINITY;
            }
        }
        dense
    }
}

/// Probabilities of all tokens, zero if all are banned.
fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return vec![0.0; logits.len()];
    }
    let weights: Vec<f64> = logits.iter().map(|x| (x - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Tokens that are not banned, the likeliest first.
fn ranking(logits: &[f64]) -> Vec<TokenId> {
    let mut ids: Vec<usize> =
        (0..logits.len()).filter(|&id| logits[id] > f64::NEG_INFINITY).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    ids.into_iter().map(|id| id as TokenId).collect()
}

fn close(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got} for {want}");
}

#[test]
fn candidates_equal_those_of_all_logits() {
    let mut banned = 0;
    for seed in 0..400 {
        let case = Case::random(seed);
        let (sparse, dense) = (case.sparse(), case.dense());
        let (p, ranked) = (softmax(&dense), ranking(&dense));
        for present in 0..VOCAB {
            let Some(candidate) = sparse.candidate(&Sampling::GREEDY, Position::ZERO, present)
            else {
                banned += 1;
                assert_eq!(ranked, [], "seed {seed}");
                break;
            };
            assert_eq!(candidate.token, ranked[0], "seed {seed}");
            close(candidate.probability, p[ranked[0] as usize], 1e-12);
            close(candidate.present, p[present as usize], 1e-12);
            let entropy = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
            close(f64::from(candidate.entropy), entropy, 1e-6);
            if let Some(&second) = ranked.get(1) {
                assert_eq!(candidate.runner_up, second, "seed {seed}");
                close(candidate.runner_up_probability, p[second as usize], 1e-12);
            } else {
                assert_eq!(candidate.gap, f32::INFINITY);
            }
        }
    }
    assert!((1..200).contains(&banned), "{banned} cases ban everything");
}

#[test]
fn tops_equal_a_sort_of_all_logits() {
    for seed in 0..400 {
        let case = Case::random(seed);
        let (dense, ranked) = (case.dense(), ranking(&case.dense()));
        let p = softmax(&dense);
        for count in [0, 1, 2, 5, 20, 69] {
            let tops = case.sparse().tops(count, MASK);
            if ranked.is_empty() {
                continue;
            }
            assert_eq!(tops.len(), count);
            for (number, top) in tops.iter().enumerate() {
                if let Some(&token) = ranked.get(number) {
                    assert_eq!(top.token, token, "seed {seed}, number {number}");
                    let max = dense[ranked[0] as usize];
                    let log = dense[token as usize] - max + p[ranked[0] as usize].ln();
                    close(f64::from(top.logprob), log, 1e-4);
                } else {
                    assert_eq!(top.logprob, f32::NEG_INFINITY);
                    assert_ne!(top.token, MASK);
                }
            }
        }
        let all = case.sparse().tops(69, MASK);
        let total: f64 = all.iter().map(|top| f64::from(top.logprob).exp()).sum();
        assert!(ranked.is_empty() || (total - 1.0).abs() < 1e-5, "{total}");
    }
}

#[test]
fn draws_follow_the_tempered_probabilities_within_the_set() {
    for seed in [1, 2, 3, 5, 6, 7] {
        let case = Case::random(seed);
        let (sparse, dense) = (case.sparse(), case.dense());
        if ranking(&dense).is_empty() {
            continue;
        }
        let tempered: Vec<f64> = dense.iter().map(|x| x / 2.0).collect();
        let expected = softmax(&tempered);
        let mut counts = vec![0; VOCAB as usize];
        for seed in 0..20_000 {
            let sampling = Sampling { seed, ..HOT };
            let candidate = sparse.candidate(&sampling, Position::new(7), 0).unwrap();
            counts[candidate.token as usize] += 1;
        }
        for (&count, p) in counts.iter().zip(expected) {
            assert!(p > 0.0 || count == 0);
            close(f64::from(count) / 20_000.0, p, 0.015);
        }
    }
}

#[test]
fn filters_cut_the_ranking_at_its_place() {
    for seed in 0..60 {
        let case = Case::random(seed);
        let (sparse, dense) = (case.sparse(), case.dense());
        let (p, ranked) = (softmax(&dense), ranking(&dense));
        if ranked.is_empty() {
            continue;
        }
        let drawn = |settings: Sampling| -> BTreeSet<TokenId> {
            let draws = (0..300).map(|seed| Sampling { seed, ..settings });
            let tokens = draws
                .map(|sampling| sparse.candidate(&sampling, Position::new(7), 0).unwrap().token);
            tokens.collect()
        };
        for top_k in [1, 2, 4, 9] {
            let kept = &ranked[..ranked.len().min(top_k as usize)];
            // Tokens as likely as the last one kept may stand in for it.
            let least = dense[kept[kept.len() - 1] as usize];
            let drawn = drawn(Sampling { top_k, ..HOT });
            assert!(drawn.len() <= kept.len());
            assert!(drawn.iter().all(|&token| dense[token as usize] >= least));
        }
        for top_p in [0.0, 0.3, 0.8] {
            let mut mass = 0.0;
            let enough = ranked.iter().position(|&token| {
                mass += p[token as usize];
                mass >= f64::from(top_p) - 1e-12
            });
            let last = ranked[enough.unwrap_or(ranked.len() - 1)];
            let drawn = drawn(Sampling { top_p, ..HOT });
            let least = dense[last as usize];
            assert!(drawn.iter().all(|&token| dense[token as usize] >= least));
            assert!(top_p > 0.0 || drawn.len() == 1);
        }
    }
}
