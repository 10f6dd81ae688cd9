//! Reduces rows of logits to one small record per row.

mod adjust;
mod maxima;
mod row;
mod sample;
mod softmax;

pub use adjust::LogitBias;

use crate::parallel::{self, Shared};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use row::Scratch;
use std::ops::Range;

/// Numbers per row in the op's output, without the most probable tokens.
const FIELDS: usize = 7;
/// Numbers per most probable token: id and log-probability.
const TOP_FIELDS: usize = 2;

/// Sampling settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// 0: argmax; otherwise Gumbel-max over `logits / temperature`.
    pub temperature: f32,
    /// Nucleus mass in `0.0..=1.0`; 1: off.
    pub top_p: f32,
    /// Minimum probability relative to the best token; 0: off.
    pub min_p: f32,
    /// Keep only the k most probable tokens; 0: off.
    pub top_k: u32,
    /// The noise is keyed by seed, clock, position and token.
    pub seed: u64,
    /// See `seed`.
    pub clock: u32,
}

/// The scorer of one row of logits.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorerRow {
    /// The token whose probability is wanted, usually the row's input token.
    pub input: u32,
    /// The row's position, part of the noise's key.
    pub position: u32,
    /// Range of [`Scorer::biases`], applied in order.
    pub biases: Range<u32>,
    /// Index of a set in [`Scorer::allowed`]. Tokens outside it are banned after the biases.
    pub allowed: Option<u32>,
    /// Number of most probable tokens to return, `0..v`.
    pub tops: u32,
    /// Index into [`Scorer::draws`].
    pub draw: u32,
}

/// The inputs of scoring other than the logits.
#[derive(Clone, Copy)]
pub struct Scorer<'a> {
    /// One entry per row of logits.
    pub rows: &'a [ScorerRow],
    /// Logit biases that rows refer to.
    pub biases: &'a [LogitBias],
    /// Sets of tokens that rows refer to, `v.div_ceil(32)` words each: token t is bit `t % 32`
    /// of word `t / 32`. Bits beyond the vocabulary are ignored.
    pub allowed: &'a [u32],
    /// Sampling settings that rows refer to.
    pub draws: &'a [Draw],
    /// The mask token. It is part of the softmax but never chosen, runner-up or in the tops.
    pub mask: u32,
}

/// The record of one row. Probabilities are the f64 softmax of the f32 logits after biases and
/// allowed set, without temperature, filters or noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The argmax at temperature 0 (lowest id on ties), otherwise the sampled token. If every token is
    /// banned, the lowest id, with probability 0.
    pub token: u32,
    /// Probability of `token`.
    pub probability: f64,
    /// The most probable other token except the mask (lowest id on ties).
    pub runner_up: u32,
    /// Probability of `runner_up`.
    pub runner_up_probability: f64,
    /// Entropy of the distribution in nats.
    pub entropy: f64,
    /// Largest minus second largest logit, without the mask's.
    pub gap: f64,
    /// Probability of the token that the row asks for, 0 if it has no logit.
    pub present: f64,
}

/// One of a row's most probable tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    /// The token, never the mask.
    pub token: u32,
    /// Natural logarithm of its probability (as in [`Scored`]); minus infinity if only banned tokens
    /// are left.
    pub log_probability: f64,
}

/// The scores of rows of logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// One record per row.
    pub records: Vec<Scored>,
    /// [`ScorerRow::tops`] entries per row, in row order, by descending logit; ties by ascending id.
    pub tops: Vec<Top>,
    /// The mean embedding `[d]` of each row, if the head has a table for it.
    pub soft: Vec<f32>,
}

/// Scores `logits [r, v]`, f32.
///
/// # Errors
/// If shapes or indices are invalid, or a row's logits are not finite.
pub fn score(logits: &Tensor, scorer: &Scorer<'_>) -> Result<Scores> {
    let numbers = logits
        .apply_op1_no_bwd(&ScoreRows(*scorer))?
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

/// Numbers per row of the op's output: the record and the longest list of most probable tokens.
fn width(scorer: &Scorer<'_>) -> usize {
    let tops = scorer.rows.iter().map(|row| row.tops).max().unwrap_or(0);
    FIELDS + TOP_FIELDS * tops as usize
}

/// Returns f64 `[r, width]`; ids are exact.
struct ScoreRows<'a>(Scorer<'a>);

impl CustomOp1 for ScoreRows<'_> {
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
        // Few tasks per thread, because a row of a small vocabulary takes microseconds.
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

impl ScoreRows<'_> {
    fn check(&self, rows: usize, vocab: usize) -> Result<()> {
        let scorer = &self.0;
        if scorer.rows.len() != rows {
            bail!(
                "score: expected scorers for {rows} rows, found {}",
                scorer.rows.len()
            );
        }
        if vocab < 3 {
            bail!("score: expected a vocabulary of at least 3 tokens, found {vocab}");
        }
        if let Some(bias) = scorer.biases.iter().find(|b| b.token as usize >= vocab) {
            bail!("score: bias for token {} of {vocab}", bias.token);
        }
        let sets = scorer.allowed.len() / vocab.div_ceil(32);
        for row in scorer.rows {
            let (from, to) = (row.biases.start as usize, row.biases.end as usize);
            if scorer.biases.get(from..to).is_none() || row.draw as usize >= scorer.draws.len() {
                bail!(
                    "score: a row's biases {:?} or settings {} are out of range",
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
