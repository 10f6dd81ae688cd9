//! Reduces rows of logits to one small record per row.

mod adjust;
mod maxima;
mod row;
mod sample;
mod softmax;

use crate::parallel::{self, Shared};
use crate::storage::numbers;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use row::Scratch;
use std::ops::Range;
use step::{Bias, Candidate, Segment, TopToken};

/// Numbers per row in the op's output, without the most probable tokens.
const FIELDS: usize = 7;
/// Numbers per most probable token: id and log-probability.
const TOP_FIELDS: usize = 2;

/// The scorer of one row of logits.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorerRow {
    /// The row's input token, whose probability is wanted.
    pub input: u32,
    /// The row's position, part of the noise's key.
    pub position: u32,
    /// Range of [`Scorer::biases`], applied in order.
    pub biases: Range<u32>,
    /// Index of a set in [`Scorer::allowed`]. Tokens outside it are banned after the biases.
    pub allowed: Option<u32>,
    /// Number of most probable tokens to return, `0..v`.
    pub tops: u32,
    /// Index of a set in [`Scorer::allowed`] whose tokens alone are returned. It bans nothing.
    pub among: Option<u32>,
    /// Index into [`Scorer::segments`], whose sampling draws the token.
    pub segment: u32,
}

/// The inputs of scoring other than the logits.
#[derive(Clone, Copy)]
pub struct Scorer<'a> {
    /// One entry per row of logits.
    pub rows: &'a [ScorerRow],
    /// Logit biases that rows refer to.
    pub biases: &'a [Bias],
    /// Sets of tokens that rows refer to, `v.div_ceil(32)` words each: token t is bit `t % 32`
    /// of word `t / 32`. Bits beyond the vocabulary are ignored.
    pub allowed: &'a [u32],
    /// The segments that rows refer to.
    pub segments: &'a [Segment],
    /// The mask token. It is part of the softmax but never chosen, runner-up or in the tops.
    pub mask: u32,
}

impl Scorer<'_> {
    /// Bans the tokens of `logits [v]` outside of a row's set of allowed tokens, if it has one.
    pub(crate) fn restrict(&self, row: &ScorerRow, logits: &mut [f32]) {
        let words = logits.len().div_ceil(32);
        if let Some(set) = row.allowed {
            adjust::restrict(logits, &self.allowed[set as usize * words..][..words]);
        }
    }
}

/// The scores of rows of logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// One per row. Probabilities are the f64 softmax of the f32 logits after biases and allowed set.
    pub candidates: Vec<Candidate>,
    /// [`ScorerRow::tops`] entries per row, in row order, by descending logit; ties by ascending id.
    pub tops: Vec<TopToken>,
    /// The mean embedding `[d]` of each row, if the head has a table for it.
    pub soft: Vec<f32>,
}

/// Scores `logits [r, v]`, f32.
///
/// # Errors
/// If shapes or indices are invalid, or a row's logits are not finite.
pub fn score(logits: &Tensor, scorer: &Scorer<'_>) -> Result<Scores> {
    let numbers = logits.apply_op1_no_bwd(&ScoreRows(*scorer))?.flatten_all()?.to_vec1::<f64>()?;
    let mut scores = Scores::default();
    for (index, numbers) in numbers.chunks_exact(width(scorer)).enumerate() {
        let (record, tops) = numbers.split_at(FIELDS);
        let &[token, probability, runner_up, runner_up_probability, entropy, gap, present] = record
        else {
            bail!("score: a record has {FIELDS} fields");
        };
        if record.iter().any(|x| x.is_nan()) {
            bail!("the logits of scored row {index} are not finite");
        }
        scores.candidates.push(Candidate {
            token: token as u32,
            probability,
            runner_up: runner_up as u32,
            runner_up_probability,
            entropy: entropy as f32,
            gap: gap as f32,
            present,
        });
        let count = scorer.rows[index].tops as usize;
        let tops = tops.chunks_exact(TOP_FIELDS).take(count);
        scores
            .tops
            .extend(tops.map(|top| TopToken { token: top[0] as u32, logprob: top[1] as f32 }));
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
        let logits = numbers(self.name(), logits, layout)?;
        self.check(rows, vocab)?;
        let width = width(&self.0);
        let mut out = vec![0.0f64; rows * width];
        let shared = Shared::new(&mut out);
        // Few tasks per thread, because a row of a small vocabulary takes microseconds.
        let block = rows.div_ceil(4 * parallel::threads()).max(1);
        parallel::for_each_with(rows.div_ceil(block), Scratch::default, |scratch, task| {
            for row in task * block..((task + 1) * block).min(rows) {
                // SAFETY: each row is written once.
                let out = unsafe { shared.slice(row * width, width) };
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
            bail!("score: expected scorers for {rows} rows, found {}", scorer.rows.len());
        }
        if vocab < 3 {
            bail!("score: expected a vocabulary of at least 3 tokens, found {vocab}");
        }
        if let Some(bias) = scorer.biases.iter().find(|b| b.token as usize >= vocab) {
            bail!("score: bias for token {} of {vocab}", bias.token);
        }
        let sets = scorer.allowed.len() / vocab.div_ceil(32);
        for row in scorer.rows {
            let (start, end) = (row.biases.start as usize, row.biases.end as usize);
            if scorer.biases.get(start..end).is_none()
                || row.segment as usize >= scorer.segments.len()
            {
                bail!("score: a row's biases {:?} or segment {} are out of range", row.biases, {
                    row.segment
                });
            }
            let mut named = row.allowed.into_iter().chain(row.among);
            if let Some(set) = named.find(|&set| set as usize >= sets) {
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
