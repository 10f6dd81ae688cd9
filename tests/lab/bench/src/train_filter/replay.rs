//! Replays a known answer block by block and records the model's candidates and whether they are
//! right.

use std::ops::Range;

use anyhow::{Context, Result};
use decode::Candidate;
use step::{
    Batch, BatchOutput, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot, as_count,
};

/// The model's candidates for a block in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Confidence of every position of the block; 1 at positions that a shorter last block lacks.
    pub confidences: Vec<f32>,
    /// True if a mask's most probable token is the answer's; `None` if the position is not a mask.
    pub right: Vec<Option<bool>>,
}

/// A sequence and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Prompt ids.
    pub prompt: &'a [u32],
    /// The answer, without its stop token.
    pub answer: &'a [u32],
    /// Generation budget; a shorter answer ended with a stop token.
    pub budget: u32,
    /// Tokens that end an answer; each is right after its end.
    pub stops: &'a [u32],
}

/// The replay of one sequence (Learn2PD §3.2): every step commits exactly the masks whose most
/// probable token is right. A step without such a mask ends the block, because the next step would be
/// the same; the answer then fills the block. A stop token ends the canvas, as in decoding.
#[derive(Debug)]
pub struct Replay<'a> {
    known: Known<'a>,
    canvas: Vec<Option<u32>>,
    block: Range<usize>,
    block_length: usize,
    /// No step of the block has run yet.
    fresh: bool,
}

impl<'a> Replay<'a> {
    /// A replay in blocks of `block_length >= 1` positions.
    pub fn new(known: Known<'a>, block_length: usize) -> Self {
        let ends = !known.stops.is_empty();
        let len = if ends { known.budget as usize } else { known.answer.len() };
        Self {
            known,
            canvas: vec![None; len],
            block: 0..block_length.min(len),
            block_length,
            fresh: true,
        }
    }

    /// True if every position has its token.
    pub fn is_done(&self) -> bool {
        self.block.is_empty()
    }

    /// Writes the next forward under the dual cache into `batch`: all positions when a block starts,
    /// then the block alone; the block's positions are scored. Open positions hold `mask`.
    pub fn plan(&self, batch: &mut Batch, mask: u32, page_size: u32) {
        batch.clear();
        let prompt = self.known.prompt;
        let end = prompt.len() + self.canvas.len();
        let scored = prompt.len() + self.block.start..prompt.len() + self.block.end;
        let rows = if self.fresh { 0..end } else { scored.clone() };
        batch.rows.extend(rows.map(|position| {
            let token = match position.checked_sub(prompt.len()) {
                None => prompt[position],
                Some(offset) => self.canvas[offset].unwrap_or(mask),
            };
            let index = as_count(position);
            Row {
                score: match scored.contains(&position) {
                    true => Score::Candidate,
                    false => Score::None,
                },
                ..Row::new(token, Position::new(index), Slot::new(index), Slot::new(as_count(end)))
            }
        }));
        let pages = (end as u32).div_ceil(page_size);
        batch.pages.extend((0..pages).map(PageId));
        batch.segments.push(Segment {
            rows: 0..batch.rows.len() as u32,
            pages: 0..pages,
            sampling: Sampling::GREEDY,
        });
    }

    /// Takes the candidates of the block's positions, one each.
    pub fn observe(&mut self, said: &[Candidate]) -> Example {
        let mut example = Example {
            confidences: vec![1.0; self.block_length],
            right: vec![None; self.block_length],
        };
        let mut progress = false;
        for ((index, offset), candidate) in self.block.clone().enumerate().zip(said) {
            example.confidences[index] = candidate.probability as f32;
            if self.canvas[offset].is_some() {
                continue;
            }
            let right = self.is_right(offset, candidate.token);
            example.right[index] = Some(right);
            if right {
                self.canvas[offset] = Some(candidate.token);
                progress = true;
            }
        }
        if !progress {
            self.fill();
        }
        self.fresh = false;
        self.advance();
        example
    }

    fn is_right(&self, offset: usize, token: u32) -> bool {
        match self.known.answer.get(offset) {
            Some(answer) => *answer == token,
            None => self.known.stops.contains(&token),
        }
    }

    fn fill(&mut self) {
        for offset in self.block.clone() {
            let stop = self.known.stops.first();
            let answer = self.known.answer.get(offset).or(stop);
            self.canvas[offset] = self.canvas[offset].or(answer.copied());
        }
    }

    /// Cuts the canvas after its first stop token, and moves to the next block when this one is full.
    fn advance(&mut self) {
        let is_stop = |cell: &Option<u32>| cell.is_some_and(|id| self.known.stops.contains(&id));
        let stop = self.canvas[self.block.clone()].iter().position(is_stop);
        if let Some(index) = stop {
            self.canvas.truncate(self.block.start + index + 1);
            self.block.end = self.canvas.len();
        }
        if self.canvas[self.block.clone()].iter().all(Option::is_some) {
            let start = self.block.end;
            self.block = start..(start + self.block_length).min(self.canvas.len());
            self.fresh = true;
        }
    }
}

/// Replays one sequence on the first pages of `executor`.
///
/// # Errors
/// A failed step.
pub fn replay(
    executor: &mut dyn Executor,
    known: Known<'_>,
    block_length: u32,
) -> Result<Vec<Example>> {
    let spec = executor.spec();
    let mask = spec.mask.context("the model has no mask token")?;
    let (mut batch, mut output) = (Batch::default(), BatchOutput::default());
    let mut replay = Replay::new(known, block_length as usize);
    let mut examples = Vec::new();
    while !replay.is_done() {
        replay.plan(&mut batch, mask, spec.page_size);
        executor.execute(&batch, &mut output)?;
        examples.push(replay.observe(&output.candidates));
    }
    Ok(examples)
}

#[cfg(test)]
mod tests;
