//! From logits to candidates: biases, bans, ties and sampling.

use crate::common::{batch, config, executor, pages, push, rows, run};
use step::{Batch, Bias, Candidate, Sampling, Score, TokenId};

const BAN: f32 = f32::NEG_INFINITY;

/// A batch of eight positions whose last one is masked and biased.
fn biased(biases: &[(TokenId, f32)]) -> Batch {
    let mut tokens: Vec<u32> = (20..27).collect();
    tokens.push(config().mask);
    let mut batch = batch(rows(&tokens, 0, 8), &pages([0, 1]));
    batch.biases = biases.iter().map(|&(token, amount)| Bias::add(token, amount)).collect();
    batch.rows[7].biases = 0..biases.len() as u32;
    batch
}

fn last(batch: &Batch) -> Candidate {
    *run(&mut executor(), batch).unwrap().last().unwrap()
}

#[test]
fn the_fields_of_a_candidate_fit_together() {
    let plain = last(&biased(&[]));
    assert!(plain.probability > plain.runner_up_probability && plain.token != plain.runner_up);
    let gap = (plain.probability / plain.runner_up_probability).ln();
    assert!((gap - f64::from(plain.gap)).abs() < 1e-5);
    let (p, q) = (plain.probability, plain.runner_up_probability);
    let known = -p * p.ln() - q * q.ln();
    assert!(f64::from(plain.entropy) > known && f64::from(plain.entropy) < (512f64).ln());
    let more = last(&biased(&[(plain.runner_up, 0.01)]));
    assert!(more.gap < plain.gap && more.entropy > plain.entropy);
}

#[test]
fn a_banned_token_gives_way_to_the_next_best() {
    let plain = last(&biased(&[]));
    let second = last(&biased(&[(plain.token, BAN)]));
    assert_eq!(second.token, plain.runner_up);
    assert!(second.probability > plain.runner_up_probability, "renormalised");
    let third = last(&biased(&[(plain.token, BAN), (plain.runner_up, BAN)]));
    assert_eq!(third.token, second.runner_up);
}

#[test]
fn a_raised_token_wins_and_amounts_add_up() {
    let plain = last(&biased(&[(300, 30.0)]));
    assert_eq!(plain.token, 300);
    let cancelled = last(&biased(&[(300, 30.0), (300, -30.0)]));
    assert_eq!(cancelled.token, last(&biased(&[])).token);
    assert_eq!(last(&biased(&[(300, 30.0), (300, BAN)])).token, cancelled.token);
}

#[test]
fn the_lowest_id_wins_a_tie_and_the_mask_never_wins() {
    let tied = last(&biased(&[(400, 50.0), (300, 50.0), (config().mask, 90.0)]));
    assert_eq!((tied.token, tied.runner_up, tied.gap), (300, 400, 0.0));
}

#[test]
fn with_all_but_one_token_banned_that_one_is_certain() {
    let bans: Vec<_> = (0..512).filter(|&token| token != 77).map(|token| (token, BAN)).collect();
    let only = last(&biased(&bans));
    assert_eq!((only.token, only.probability, only.entropy), (77, 1.0, 0.0));
    assert_eq!((only.runner_up_probability, only.gap), (0.0, f32::INFINITY));
    assert_ne!(only.runner_up, 77);
    let all: Vec<_> = (0..512).map(|token| (token, BAN)).collect();
    let what = run(&mut executor(), &biased(&all)).unwrap_err().to_string();
    assert!(what.contains("ban every token"), "{what}");
}

#[test]
fn bias_amounts_that_are_no_logits_are_errors() {
    for amount in [f32::NAN, f32::INFINITY] {
        assert!(run(&mut executor(), &biased(&[(5, amount)])).is_err());
    }
    assert!(run(&mut executor(), &biased(&[(512, 1.0)])).is_err());
}

/// Shares of the best token among draws with different seeds.
fn share(sampling: Sampling) -> f64 {
    let best = last(&biased(&[])).token;
    let mut batch = biased(&[]);
    let draws = (0..400).filter(|&seed| {
        batch.segments[0].sampling = Sampling { seed, ..sampling };
        last(&batch).token == best
    });
    draws.count() as f64 / 400.0
}

#[test]
fn sampling_follows_the_distribution_and_its_filters() {
    let probability = last(&biased(&[])).probability;
    let warm = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    assert!((share(warm) - probability).abs() < 0.08, "{} of {probability}", share(warm));
    assert!(share(Sampling { temperature: 4.0, ..warm }) < share(warm) - 0.1);
    assert_eq!(share(Sampling { top_k: 1, ..warm }), 1.0);
    assert_eq!(share(Sampling { top_p: 0.01, ..warm }), 1.0);
    assert_eq!(share(Sampling { min_p: 1.0, ..warm }), 1.0);
}

/// The draws of 24 masks, computed beside `others` sequences on pages from `first` on; of the masks, every
/// `scored`-th one has a candidate.
fn draws(sampling: Sampling, others: u32, first: u32, scored: usize) -> Vec<Candidate> {
    let mut all = Batch::default();
    for other in 0..others {
        let tokens: Vec<u32> = (30 + other..42 + other).collect();
        let table = pages(100 + 3 * other..103 + 3 * other);
        push(&mut all, rows(&tokens, 0, 12), &table);
        all.segments[other as usize].sampling = Sampling { temperature: 0.5, ..sampling };
    }
    let before = all.scored();
    let mut tokens: Vec<u32> = (20..24).collect();
    tokens.extend([config().mask; 24]);
    let mut rows = rows(&tokens, 0, 28);
    for (number, row) in rows.iter_mut().enumerate() {
        if number < 4 || !number.is_multiple_of(scored) {
            row.score = Score::None;
        }
    }
    push(&mut all, rows, &pages(first..first + 7));
    all.segments[others as usize].sampling = sampling;
    run(&mut executor(), &all).unwrap().split_off(before)
}

#[test]
fn a_draw_depends_on_seed_clock_and_position_alone() {
    let hot = Sampling { temperature: 2.0, seed: 3, clock: 4, ..Sampling::GREEDY };
    let drawn = draws(hot, 0, 0, 1);
    assert_ne!(drawn, draws(Sampling { seed: 4, ..hot }, 0, 0, 1));
    assert_ne!(drawn, draws(Sampling { clock: 5, ..hot }, 0, 0, 1));
    // Neither other sequences, nor the pages, nor the other scored rows change a draw.
    assert_eq!(drawn, draws(hot, 3, 40, 1));
    // Position 4 is the first mask; multiples of three begin at 6.
    let third: Vec<Candidate> = drawn.iter().copied().skip(2).step_by(3).collect();
    assert_eq!(draws(hot, 1, 7, 3), third);
    for candidate in drawn {
        assert_ne!(candidate.token, config().mask);
        assert_ne!(candidate.token, candidate.runner_up);
        assert!((0.0..=1.0).contains(&candidate.probability));
    }
}
