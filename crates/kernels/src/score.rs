//! From rows of logits to one small record per row.

mod adjust;
mod maxima;
mod row;
mod softmax;

pub use adjust::LogitBias;

use crate::parallel::{self, Shared};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use row::Scratch;
use std::ops::Range;

/// Numbers per row that the op returns, those of the most probable tokens left out.
const FIELDS: usize = 7;
/// Numbers per most probable token: its id and the logarithm of its probability.
const TOP_FIELDS: usize = 2;

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
    /// Range of [`Scorer::biases`], applied in order.
    pub biases: Range<u32>,
    /// Number of a set of [`Scorer::allowed`]: tokens outside it are banned after the biases.
    pub allowed: Option<u32>,
    /// Most probable tokens wanted, `0..v`.
    pub tops: u32,
    /// Index into [`Scorer::draws`].
    pub draw: u32,
}

/// Everything that scoring needs besides the logits.
#[derive(Clone, Copy)]
pub struct Scorer<'a> {
    /// One entry per row of logits.
    pub rows: &'a [ScorerRow],
    /// Changes of logits that rows refer to.
    pub biases: &'a [LogitBias],
    /// Sets of tokens that rows refer to, `v.div_ceil(32)` words each: token t is bit `t % 32`
    /// of word `t / 32`. Bits beyond the vocabulary are ignored.
    pub allowed: &'a [u32],
    /// Settings that rows refer to.
    pub draws: &'a [Draw],
    /// Never chosen, runner-up nor one of the most probable, but part of the softmax.
    pub mask: u32,
}

/// The record of one row. Probabilities are those of the softmax in f64 of the f32 logits after
/// biases and allowed set, without temperature, filters or noise.
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

/// One of a row's most probable tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    /// The token, never the mask.
    pub token: u32,
    /// Natural logarithm of its probability (as in [`Scored`]), minus infinity once no token
    /// that is not banned is left.
    pub log_probability: f64,
}

/// What rows of logits reduce to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// One record per row.
    pub records: Vec<Scored>,
    /// [`ScorerRow::tops`] entries per row, in row order, by falling logit, the lower id first
    /// on ties.
    pub tops: Vec<Top>,
}

/// Scores `logits [r, v]`, f32.
///
/// # Errors
/// If shapes or indices do not fit, or a row's logits are not numbers.
pub fn score(logits: &Tensor, scorer: &Scorer<'_>) -> Result<Scores> {
    let numbers = logits
        .apply_op1_no_bwd(&Score(*scorer))?
        .flatten_all()?
        .to_vec1::<f64>()?;
    let mut scores = Scores::default();
    for (index, numbers) in numbers.chunks_exact(width(scorer)).enumerate() {
        let (record, tops) = numbers.split_at(FIELDS);
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
            bail!("the logits of scored row {index} are not finite");
        }
        scores.records.push(Scored {
            token: token as u32,
            probability,
            runner_up: runner_up as u32,
            runner_up_probability,
            entropy,
            gap,
            present,
        });
        let wanted = scorer.rows[index].tops as usize;
        let tops = tops.chunks_exact(TOP_FIELDS).take(wanted);
        scores.tops.extend(tops.map(|top| Top {
            token: top[0] as u32,
            log_probability: top[1],
        }));
    }
    Ok(scores)
}

/// Numbers per row of the op's output: the record, then room for the longest list of most
/// probable tokens.
fn width(scorer: &Scorer<'_>) -> usize {
    let tops = scorer.rows.iter().map(|row| row.tops).max().unwrap_or(0);
    FIELDS + TOP_FIELDS * tops as usize
}

/// Yields f64 `[r, width]`: on any device a few numbers per row leave it (ids are exact).
struct Score<'a>(Scorer<'a>);

impl CustomOp1 for Score<'_> {
    fn name(&self) -> &'static str {
        "score"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, vocab) = layout.shape().dims2()?;
        let logits = f32s(self.name(), logits, layout)?;
        self.check(rows, vocab)?;
        let width = width(&self.0);
        let mut out = vec![0.0f64; rows * width];
        let shared = Shared::new(&mut out);
        // Few tasks per thread: a row of a small vocabulary takes microseconds.
        let block = rows.div_ceil(4 * parallel::threads()).max(1);
        parallel::for_each_with(rows.div_ceil(block), Scratch::default, |scratch, task| {
            for row in task * block..((task + 1) * block).min(rows) {
                // SAFETY: each row is written once.
                let out = unsafe { shared.part(row * width, width) };
                let logits = &logits[row * vocab..(row + 1) * vocab];
                row::reduce(&self.0, &self.0.rows[row], logits, scratch, out);
            }
        });
        Ok((CpuStorage::F64(out), Shape::from((rows, width))))
    }
}

impl Score<'_> {
    fn check(&self, rows: usize, vocab: usize) -> Result<()> {
        let scorer = &self.0;
        if scorer.rows.len() != rows {
            bail!("score: {} rows described, {rows} given", scorer.rows.len());
        }
        if vocab < 3 {
            bail!("score: a vocabulary of {vocab} leaves no choice besides the mask");
        }
        if let Some(bias) = scorer.biases.iter().find(|b| b.token as usize >= vocab) {
            bail!("score: bias for token {} of {vocab}", bias.token);
        }
        let sets = scorer.allowed.len() / vocab.div_ceil(32);
        for row in scorer.rows {
            let (from, to) = (row.biases.start as usize, row.biases.end as usize);
            if scorer.biases.get(from..to).is_none() || row.draw as usize >= scorer.draws.len() {
                bail!(
                    "score: a row's biases {:?} or settings {} are missing",
                    row.biases,
                    { row.draw }
                );
            }
            if let Some(set) = row.allowed.filter(|&set| set as usize >= sets) {
                bail!("score: allowed set {set} of {sets}");
            }
            if row.tops as usize >= vocab {
                bail!("score: {} tops of {} tokens", row.tops, vocab - 1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
