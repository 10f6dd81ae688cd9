//! Reduces one row of logits to its record and its most probable tokens.

use super::maxima::Maxima;
use super::softmax::Softmax;
use super::{FIELDS, Scorer, ScorerRow, TOP_FIELDS, adjust, sample};

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    logits: Vec<f32>,
    maxima: Maxima,
    kept: Vec<(u32, f64)>,
    tops: Vec<(u32, f32)>,
}

/// Writes the record of a row with these `logits [v]` to `out [FIELDS + 2 k]`, followed by its
/// `row.tops` most probable tokens, at most k.
pub(super) fn reduce(
    scorer: &Scorer<'_>,
    row: &ScorerRow,
    logits: &[f32],
    scratch: &mut Scratch,
    out: &mut [f64],
) {
    let x = &mut scratch.logits;
    x.clear();
    x.extend_from_slice(logits);
    let biases = row.biases.start as usize..row.biases.end as usize;
    adjust::bias(x, &scorer.biases[biases]);
    let words = x.len().div_ceil(32);
    let set = |set: u32| &scorer.allowed[set as usize * words..][..words];
    scorer.restrict(row, x);
    let mask = scorer.mask as usize;
    let mask_logit = replace(x, mask, f32::NEG_INFINITY);
    let (maxima, tops) = (&mut scratch.maxima, &mut scratch.tops);
    maxima.fill(x);
    let best = maxima.first_largest(x, [mask, mask]);
    let top = replace(x, best, f32::NEG_INFINITY);
    maxima.update(x, best);
    let second = maxima.first_largest(x, [best, mask]);
    tops.clear();
    let listed = row.tops > 0 && row.among.is_none() && top > f32::NEG_INFINITY;
    if listed {
        tops.push((best as u32, top));
        maxima.largest(x, row.tops as usize - 1, tops);
    }
    x[best] = top;
    if let Some(among) = row.among {
        list(x, set(among), row.tops as usize, tops);
    }
    let draw = &scorer.segments[row.segment as usize].sampling;
    let token = if draw.temperature > 0.0 && top > f32::NEG_INFINITY {
        sample::draw(x, best as u32, draw, row.position, &mut scratch.kept) as usize
    } else {
        best
    };
    let runner_up = if token == best { second } else { best };
    replace(x, mask, mask_logit);
    let softmax = Softmax::of(x, top.max(mask_logit));
    let gap = if top == f32::NEG_INFINITY {
        0.0
    } else {
        (f64::from(top) - f64::from(x[second])).max(0.0)
    };
    let present = x.get(row.input as usize);
    out[..FIELDS].copy_from_slice(&[
        token as f64,
        softmax.probability(x[token]),
        runner_up as f64,
        softmax.probability(x[runner_up]),
        softmax.entropy,
        gap,
        present.map_or(0.0, |&logit| softmax.probability(logit)),
    ]);
    let banned = (u32::from(mask == 0), f32::NEG_INFINITY);
    let tops = tops.iter().copied().chain(std::iter::repeat(banned));
    let entries = out[FIELDS..].chunks_exact_mut(TOP_FIELDS);
    for (entry, (token, logit)) in entries.take(row.tops as usize).zip(tops) {
        entry.copy_from_slice(&[f64::from(token), softmax.log_probability(logit)]);
    }
}

/// Lists the `count` most probable tokens of a set with their logits, the lower id first on ties.
fn list(x: &[f32], set: &[u32], count: usize, tops: &mut Vec<(u32, f32)>) {
    for (word, base) in set.iter().zip((0..).step_by(32)) {
        let mut bits = *word;
        while bits != 0 {
            let token = base + bits.trailing_zeros();
            bits &= bits - 1;
            let logit = x.get(token as usize).copied();
            tops.extend(logit.filter(|x| *x > f32::NEG_INFINITY).map(|x| (token, x)));
        }
    }
    tops.sort_unstable_by(|a, b| {
        let likelier = b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal);
        likelier.then(a.0.cmp(&b.0))
    });
    tops.truncate(count);
}

/// Replaces the logit at `index` and returns the old value; minus infinity if out of range.
fn replace(logits: &mut [f32], index: usize, value: f32) -> f32 {
    let logit = logits.get_mut(index);
    logit.map_or(f32::NEG_INFINITY, |logit| std::mem::replace(logit, value))
}
