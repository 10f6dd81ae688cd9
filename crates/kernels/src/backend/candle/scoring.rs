//! Scores of logits by sorting and plain sums.

use crate::score::{Scorer, ScorerRow, Scores};
use candle_core::{Result, bail};
use step::{Candidate, Sampling, TopToken};

/// Appends the scores of rows of logits.
pub(super) fn score(rows: Vec<Vec<f32>>, scorer: &Scorer<'_>, scores: &mut Scores) -> Result<()> {
    for (number, (logits, row)) in rows.into_iter().zip(scorer.rows).enumerate() {
        if logits.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
            bail!("the logits of scored row {number} are not finite");
        }
        let logits = adjusted(logits, row, scorer);
        let (record, tops) = reduce(&logits, row, scorer)?;
        scores.candidates.push(record);
        scores.tops.extend(tops);
    }
    Ok(())
}

/// The logits after biases and the set of allowed tokens.
fn adjusted(mut logits: Vec<f32>, row: &ScorerRow, scorer: &Scorer<'_>) -> Vec<f32> {
    for bias in &scorer.biases[row.biases.start as usize..row.biases.end as usize] {
        let x = &mut logits[bias.token as usize];
        *x = match *x > 0.0 {
            true => *x / bias.repetition,
            false => *x * bias.repetition,
        } + bias.amount;
    }
    if let Some(set) = row.allowed {
        let words = logits.len().div_ceil(32);
        let set = &scorer.allowed[set as usize * words..];
        for (token, x) in logits.iter_mut().enumerate() {
            if set[token / 32] >> (token % 32) & 1 == 0 {
                *x = f32::NEG_INFINITY;
            }
        }
    }
    logits
}

/// The record of a row and its most probable tokens.
fn reduce(
    logits: &[f32],
    row: &ScorerRow,
    scorer: &Scorer<'_>,
) -> Result<(Candidate, Vec<TopToken>)> {
    // All tokens but the mask, the most probable first.
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.retain(|&token| token != scorer.mask as usize);
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let &[best, second, ..] = &*order else {
        bail!("score: expected a vocabulary of at least 3 tokens");
    };
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |token: usize| match logits[token] == f32::NEG_INFINITY {
        true => 0.0,
        false => (f64::from(logits[token]) - f64::from(largest)).exp(),
    };
    let total: f64 = (0..logits.len()).map(weight).sum();
    // Without any allowed token every probability is 0.
    let total = if total > 0.0 { total } else { 1.0 };
    let probability = |token: usize| weight(token) / total;
    let information = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    let draw = &scorer.segments[row.segment as usize].sampling;
    let any = logits[best] > f32::NEG_INFINITY;
    let token = match any && draw.temperature > 0.0 {
        true => sampled(logits, &order, draw, row.position),
        false => best,
    };
    let runner_up = if token == best { second } else { best };
    let gap = logits[best] - logits[second];
    let record = Candidate {
        token: token as u32,
        probability: probability(token),
        runner_up: runner_up as u32,
        runner_up_probability: probability(runner_up),
        entropy: (0..logits.len()).map(|t| information(probability(t))).sum::<f64>() as f32,
        gap: if any { gap } else { 0.0 },
        present: match (row.input as usize) < logits.len() {
            true => probability(row.input as usize),
            false => 0.0,
        },
    };
    // Banned tokens are listed as the lowest id.
    let banned = u32::from(scorer.mask == 0);
    let words = logits.len().div_ceil(32);
    let set = row.among.map(|set| &scorer.allowed[set as usize * words..]);
    let is_listed =
        |token: &&usize| set.is_none_or(|set| set[**token / 32] >> (**token % 32) & 1 == 1);
    let listed = order.iter().filter(is_listed).take(row.tops as usize);
    let listed = listed.map(|&token| Some(token)).chain(std::iter::repeat(None));
    let tops = listed.take(row.tops as usize).map(|token| {
        let possible = token.filter(|&token| logits[token] > f32::NEG_INFINITY);
        match possible {
            Some(token) => TopToken {
                token: token as u32,
                logprob: (f64::from(logits[token]) - f64::from(largest) - total.ln()) as f32,
            },
            None => TopToken { token: banned, logprob: f32::NEG_INFINITY },
        }
    });
    Ok((record, tops.collect()))
}

/// Samples one of the tokens in `order`, the most probable first, by the Gumbel-max trick.
fn sampled(logits: &[f32], order: &[usize], draw: &Sampling, position: u32) -> usize {
    let best = f64::from(logits[order[0]]);
    let tempered = |token: usize| {
        let x = f64::from(logits[token]) - best;
        x / f64::from(draw.temperature)
    };
    let mut kept: Vec<(usize, f64)> = order.iter().map(|&t| (t, tempered(t))).collect();
    kept.retain(|(_, x)| *x > f64::NEG_INFINITY && x.exp() >= f64::from(draw.min_p));
    if draw.top_k > 0 {
        kept.truncate(draw.top_k as usize);
    }
    if draw.top_p < 1.0 {
        let nucleus_mass = f64::from(draw.top_p) * kept.iter().map(|(_, x)| x.exp()).sum::<f64>();
        let mut mass = 0.0;
        let last = kept.iter().position(|(_, x)| {
            mass += x.exp();
            mass >= nucleus_mass
        });
        kept.truncate(last.map_or(kept.len(), |last| last + 1));
    }
    let noisy = |(token, x): (usize, f64)| (x + gumbel(draw, position, token as u32), token);
    let winner = kept.into_iter().map(noisy).max_by(|a, b| {
        let lower_id = b.1.cmp(&a.1);
        a.0.total_cmp(&b.0).then(lower_id)
    });
    winner.map_or(order[0], |(_, token)| token)
}

/// The noise of a token: a standard Gumbel variate keyed by seed, clock, position and token.
fn gumbel(draw: &Sampling, position: u32, token: u32) -> f64 {
    let key = u64::from(draw.clock) << 32 | u64::from(position);
    let row = mix(mix(draw.seed).wrapping_add(mix(key ^ 0xA5A5_A5A5_5A5A_5A5A)));
    let bits = mix(row ^ mix(u64::from(token)));
    // The middle of one of 2^53 equal intervals of (0, 1).
    let uniform = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    // The last uniform number is rounded to 1.
    (-(-uniform.ln()).ln()).min(37.0)
}

/// One step of the splitmix64 generator.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
