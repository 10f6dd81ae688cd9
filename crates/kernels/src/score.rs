//! From rows of logits to one small record per row.

use crate::parallel::{self, Shared};
use crate::sample;
use crate::simd::{Kernel, MAX_LANES, Simd, dispatch, math};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use std::ops::Range;

/// Logits whose maximum is remembered, so that finding a maximum again reads few of them.
const BLOCK: usize = 256;
/// Numbers per row that the op returns.
const FIELDS: usize = 7;

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// 0 = argmax; else Gumbel-max over `logits / temperature`.
    pub temperature: f32,
    /// Nucleus mass in `0.0..=1.0`; 1 = off.
    pub top_p: f32,
    /// Least share of the best token's probability; 0 = off.
    pub min_p: f32,
    /// Only the k most probable tokens; 0 = off.
    pub top_k: u32,
    /// First part of the noise's key; the others are `clock`, position and token.
    pub seed: u64,
    /// Second part of the noise's key.
    pub clock: u32,
}

/// What a row of logits is scored with.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorerRow {
    /// The token the row carried as its input.
    pub input: u32,
    /// Third part of the noise's key.
    pub position: u32,
    /// Range of [`Scorer::biases`].
    pub biases: Range<u32>,
    /// Index into [`Scorer::draws`].
    pub draw: u32,
}

/// Everything that scoring needs besides the logits.
#[derive(Clone, Copy)]
pub struct Scorer<'a> {
    /// One entry per row of logits.
    pub rows: &'a [ScorerRow],
    /// Token and amount added to its logit before the softmax; minus infinity bans it.
    pub biases: &'a [(u32, f32)],
    /// Settings that rows refer to.
    pub draws: &'a [Draw],
    /// Never chosen nor runner-up, but part of the softmax.
    pub mask: u32,
}

/// The record of one row. Probabilities are those of the softmax in f64 of the biased f32
/// logits, without temperature, filters or noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The argmax at temperature 0 (lowest id on ties), the drawn token otherwise. If every
    /// token is banned, the lowest id with probability 0.
    pub token: u32,
    /// Probability of `token`.
    pub probability: f64,
    /// The most probable other token except the mask (lowest id on ties).
    pub runner_up: u32,
    /// Probability of `runner_up`.
    pub runner_up_probability: f64,
    /// Entropy of the distribution in nats.
    pub entropy: f64,
    /// Largest minus second largest logit, the mask's left out.
    pub gap: f64,
    /// Probability of the input token, 0 if it has no logit.
    pub present: f64,
}

/// Scores `logits [r, v]`, f32, one record per row.
///
/// # Errors
/// If shapes or indices do not fit, or a row's logits are not numbers.
pub fn score(logits: &Tensor, scorer: &Scorer<'_>) -> Result<Vec<Scored>> {
    let records = logits
        .apply_op1_no_bwd(&Score(*scorer))?
        .flatten_all()?
        .to_vec1::<f64>()?;
    let mut scored = Vec::with_capacity(scorer.rows.len());
    for (row, record) in records.chunks_exact(FIELDS).enumerate() {
        let &[
            token,
            probability,
            runner_up,
            runner_up_probability,
            entropy,
            gap,
            present,
        ] = record
        else {
            bail!("score: a record has {FIELDS} fields");
        };
        if record.iter().any(|x| x.is_nan()) {
            bail!("the logits of scored row {row} are not finite");
        }
        scored.push(Scored {
            token: token as u32,
            probability,
            runner_up: runner_up as u32,
            runner_up_probability,
            entropy,
            gap,
            present,
        });
    }
    Ok(scored)
}

/// Yields f64 `[r, FIELDS]`: on any device a few numbers per row leave it (ids are exact).
struct Score<'a>(Scorer<'a>);

impl CustomOp1 for Score<'_> {
    fn name(&self) -> &'static str {
        "score"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, vocab) = layout.shape().dims2()?;
        let logits = f32s(self.name(), logits, layout)?;
        self.check(rows, vocab)?;
        let mut out = vec![0.0f64; rows * FIELDS];
        let shared = Shared::new(&mut out);
        // Few tasks per thread: a row of a small vocabulary takes microseconds.
        let block = rows.div_ceil(4 * parallel::threads()).max(1);
        parallel::for_each_with(rows.div_ceil(block), Scratch::default, |scratch, task| {
            for row in task * block..((task + 1) * block).min(rows) {
                // SAFETY: each row is written once.
                let out = unsafe { shared.part(row * FIELDS, FIELDS) };
                let logits = &logits[row * vocab..(row + 1) * vocab];
                out.copy_from_slice(&self.row(&self.0.rows[row], logits, scratch));
            }
        });
        Ok((CpuStorage::F64(out), Shape::from((rows, FIELDS))))
    }
}

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    logits: Vec<f32>,
    maxima: Vec<f32>,
    kept: Vec<(u32, f64)>,
}

impl Score<'_> {
    fn check(&self, rows: usize, vocab: usize) -> Result<()> {
        if self.0.rows.len() != rows {
            bail!("score: {} rows described, {rows} given", self.0.rows.len());
        }
        if vocab < 3 {
            bail!("score: a vocabulary of {vocab} leaves no choice besides the mask");
        }
        if let Some((token, _)) = self.0.biases.iter().find(|bias| bias.0 as usize >= vocab) {
            bail!("score: bias for token {token} of {vocab}");
        }
        for row in self.0.rows {
            let (from, to) = (row.biases.start as usize, row.biases.end as usize);
            if self.0.biases.get(from..to).is_none() || row.draw as usize >= self.0.draws.len() {
                bail!(
                    "score: a row's biases {:?} or settings {} are missing",
                    row.biases,
                    { row.draw }
                );
            }
        }
        Ok(())
    }

    fn row(&self, row: &ScorerRow, logits: &[f32], scratch: &mut Scratch) -> [f64; FIELDS] {
        let Scratch {
            logits: x,
            maxima,
            kept,
        } = scratch;
        x.clear();
        x.extend_from_slice(logits);
        for &(token, amount) in &self.0.biases[row.biases.start as usize..row.biases.end as usize] {
            x[token as usize] += amount;
        }
        let mask = self.0.mask as usize;
        let mask_logit = x.get(mask).copied().unwrap_or(f32::NEG_INFINITY);
        let set_mask = |x: &mut [f32], value: f32| {
            if let Some(logit) = x.get_mut(mask) {
                *logit = value;
            }
        };
        set_mask(x, f32::NEG_INFINITY);
        maxima.clear();
        maxima.extend(x.chunks(BLOCK).map(|block| dispatch(Largest(block))));
        let best = first_largest(x, maxima, [mask, mask]);
        let top = std::mem::replace(&mut x[best], f32::NEG_INFINITY);
        let block = best / BLOCK;
        let end = ((block + 1) * BLOCK).min(x.len());
        maxima[block] = dispatch(Largest(&x[block * BLOCK..end]));
        let second = first_largest(x, maxima, [best, mask]);
        x[best] = top;
        let draw = &self.0.draws[row.draw as usize];
        let token = if draw.temperature > 0.0 && x[best] > f32::NEG_INFINITY {
            sample::draw(x, best as u32, draw, row.position, kept) as usize
        } else {
            best
        };
        let runner_up = if token == best { second } else { best };
        set_mask(x, mask_logit);
        let softmax = Softmax::of(x, x[best].max(mask_logit));
        let gap = (f64::from(x[best]) - f64::from(x[second])).max(0.0);
        [
            token as f64,
            softmax.probability(x[token]),
            runner_up as f64,
            softmax.probability(x[runner_up]),
            softmax.entropy,
            if x[best] == f32::NEG_INFINITY {
                0.0
            } else {
                gap
            },
            x.get(row.input as usize)
                .map_or(0.0, |&logit| softmax.probability(logit)),
        ]
    }
}

/// The first index of the largest logit, those to `avoid` left out. `maxima` holds the largest
/// of each block.
fn first_largest(x: &[f32], maxima: &[f32], avoid: [usize; 2]) -> usize {
    let largest = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let blocks = maxima
        .iter()
        .enumerate()
        .filter(|&(_, &max)| max == largest);
    blocks
        .flat_map(|(block, _)| block * BLOCK..((block + 1) * BLOCK).min(x.len()))
        .find(|&i| x[i] == largest && !avoid.contains(&i))
        .unwrap_or(0)
}

/// The largest of some logits, minus infinity of none.
struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut largest = s.splat(f32::NEG_INFINITY);
        let (vectors, tail) = self.0.split_at(self.0.len() / S::LANES * S::LANES);
        for i in (0..vectors.len()).step_by(S::LANES) {
            // SAFETY: i + LANES <= vectors.len().
            largest = s.max(largest, unsafe { s.load(vectors.as_ptr().add(i)) });
        }
        tail.iter().copied().fold(s.largest(largest), f32::max)
    }
}

/// The softmax of a row, reduced.
struct Softmax {
    max: f64,
    total: f64,
    entropy: f64,
}

impl Softmax {
    /// Of the logits `x`, whose largest is `max`.
    fn of(x: &[f32], max: f32) -> Self {
        let max = f64::from(max);
        if max == f64::NEG_INFINITY {
            // Everything is banned: no probability anywhere.
            return Self {
                max: 0.0,
                total: 1.0,
                entropy: 0.0,
            };
        }
        let (total, weighted) = dispatch(Exponentials { x, max });
        Self {
            max,
            total,
            entropy: (total.ln() - weighted / total).max(0.0),
        }
    }

    fn probability(&self, logit: f32) -> f64 {
        (f64::from(logit) - self.max).exp() / self.total
    }
}

/// Sums of `e^(x - max)` and of `(x - max) e^(x - max)`.
struct Exponentials<'a> {
    x: &'a [f32],
    max: f64,
}

impl Kernel for Exponentials<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f64, f64) {
        let lanes = S::LANES / 2;
        let (vectors, tail) = self.x.split_at(self.x.len() / lanes * lanes);
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        padded[..tail.len()].copy_from_slice(tail);
        let mut sums = (s.splat_d(0.0), s.splat_d(0.0));
        let max = s.splat_d(self.max);
        for i in (0..vectors.len()).step_by(lanes) {
            // SAFETY: i + lanes <= vectors.len().
            let x = unsafe { s.load_widen(vectors.as_ptr().add(i)) };
            sums = fold(s, sums, s.sub_d(x, max));
        }
        // SAFETY: half a vector fits into `padded`.
        let x = unsafe { s.load_widen(padded.as_ptr()) };
        let (total, weighted) = fold(s, sums, s.sub_d(x, max));
        (math::sum_d(s, total), math::sum_d(s, weighted))
    }
}

/// Adds `e^x` to the first sum and `x e^x` to the second.
#[inline(always)]
fn fold<S: Simd>(s: S, (total, weighted): (S::D, S::D), x: S::D) -> (S::D, S::D) {
    let x = math::clamp_d(s, x);
    let e = math::exp_d(s, x);
    (s.add_d(total, e), s.fma_d(x, e, weighted))
}

#[cfg(test)]
mod tests;
