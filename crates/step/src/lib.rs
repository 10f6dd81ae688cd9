//! The contract of one forward pass: plain data between the engine and the model.
//!
//! `Batch` = segments; the rows of all segments lie packed, without padding. Per layer the
//! executor first writes every row's K/V to its slot, then every row attends to the slots
//! `[0, visible_end)` of its segment. `visible_end` alone expresses full, block-causal and causal
//! attention: no mask tensor exists.
#![deny(missing_docs)]

use std::ops::Range;

pub use decode::{Candidate, Position, Slot, Span, TokenId, as_count, as_index};

/// A physical KV page, in `0..ExecutorSpec::pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

impl PageId {
    /// Its number as an index into a slice.
    pub const fn index(self) -> usize {
        as_index(self.0)
    }
}

/// What an executor computes for a row besides its K/V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Nothing: the row is there for its K/V only and never reaches the LM head.
    None,
    /// One [`Candidate`].
    Candidate,
    /// One [`Candidate`], and as many of the most probable tokens into [`BatchOutput::tops`].
    Top(u8),
}

impl Score {
    /// Whether a candidate is wanted.
    pub fn is_wanted(self) -> bool {
        self != Self::None
    }

    /// Entries of [`BatchOutput::tops`] wanted.
    pub fn tops(self) -> usize {
        match self {
            Self::None | Self::Candidate => 0,
            Self::Top(count) => usize::from(count),
        }
    }
}

/// One query position.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Input token (often the mask token).
    pub token: TokenId,
    /// Where the token stands in the text, for RoPE and for the sampling noise.
    pub position: Position,
    /// Slot of the segment's page table that this row's K/V is written to: slot `s` lies in
    /// the table's page `s / page_size` at index `s % page_size`.
    pub slot: Slot,
    /// The row attends to the slots `[0, visible_end)` of its segment; its own slot need not be
    /// among them.
    pub visible_end: Slot,
    /// Whether a candidate is wanted.
    pub score: Score,
    /// Range of [`Batch::biases`] applied in order to this row's logits (rows may share one).
    pub biases: Range<u32>,
    /// Number of a set of [`Batch::allowed`]: tokens outside it are banned. `None` = all allowed.
    pub allowed: Option<u32>,
}

/// A change of one token's logit: a positive logit is divided by `repetition`, any other
/// multiplied with it; then `amount` is added. `f32::NEG_INFINITY` bans the token before the
/// softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias {
    /// Whose logit.
    pub token: TokenId,
    /// `> 0`; 1 changes nothing, more makes the token less likely.
    pub repetition: f32,
    /// What is added.
    pub amount: f32,
}

impl Bias {
    /// Adds `amount`.
    pub const fn add(token: TokenId, amount: f32) -> Self {
        let repetition = 1.0;
        Self {
            token,
            repetition,
            amount,
        }
    }

    /// Makes `token` impossible.
    pub const fn ban(token: TokenId) -> Self {
        Self::add(token, f32::NEG_INFINITY)
    }
}

/// Words of one set of [`Batch::allowed`] over `vocab_size` tokens.
pub const fn set_words(vocab_size: u32) -> usize {
    as_index(vocab_size.div_ceil(32))
}

/// How the token of a candidate is drawn. The noise of a row is a function of
/// (`seed`, `clock`, position, token id) alone, never of the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 = argmax; else Gumbel-max over `logits / temperature`.
    pub temperature: f32,
    /// Nucleus mass in `0.0..=1.0`; 1 = off.
    pub top_p: f32,
    /// Only tokens with at least this share of the best token's probability; 0 = off.
    pub min_p: f32,
    /// Only the k most probable tokens; 0 = off.
    pub top_k: u32,
    /// The sequence's seed.
    pub seed: u64,
    /// The sequence's step count.
    pub clock: u32,
}

impl Sampling {
    /// Temperature 0: no noise, no filters.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_p: 1.0,
        min_p: 0.0,
        top_k: 0,
        seed: 0,
        clock: 0,
    };
}

/// The rows of one sequence under one page table.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Range of [`Batch::rows`].
    pub rows: Range<u32>,
    /// Range of [`Batch::pages`]: the page table, logical order.
    pub pages: Range<u32>,
    /// How candidates of this segment are drawn.
    pub sampling: Sampling,
}

/// A page whose whole content is copied before any row of the batch is written (copy on write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// Source page.
    pub from: PageId,
    /// Destination page, written by some row of the same batch.
    pub to: PageId,
}

/// Everything one forward pass needs. Reused between steps: [`Batch::clear`] keeps capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// All rows, segment after segment.
    pub rows: Vec<Row>,
    /// The segments, covering `rows` without gap.
    pub segments: Vec<Segment>,
    /// Page tables of all segments.
    pub pages: Vec<PageId>,
    /// Biases referred to by rows.
    pub biases: Vec<Bias>,
    /// Sets of tokens, [`set_words`] words each: token t is bit `t % 32` of word `t / 32`.
    pub allowed: Vec<u32>,
    /// Copies to perform first, in order.
    pub copies: Vec<PageCopy>,
}

impl Batch {
    /// Empties the batch, keeping its allocations.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.segments.clear();
        self.pages.clear();
        self.biases.clear();
        self.allowed.clear();
        self.copies.clear();
    }

    /// The rows of a segment.
    ///
    /// # Panics
    /// If the segment's range lies outside the batch.
    pub fn rows_of(&self, segment: &Segment) -> &[Row] {
        &self.rows[indices(&segment.rows)]
    }

    /// The page table of a segment.
    ///
    /// # Panics
    /// If the segment's range lies outside the batch.
    pub fn table_of(&self, segment: &Segment) -> &[PageId] {
        &self.pages[indices(&segment.pages)]
    }

    /// The biases of a row.
    ///
    /// # Panics
    /// If the row's range lies outside the batch.
    pub fn biases_of(&self, row: &Row) -> &[Bias] {
        &self.biases[indices(&row.biases)]
    }

    /// Number of rows with a candidate wanted, the length of [`BatchOutput::candidates`].
    pub fn scored(&self) -> usize {
        self.rows.iter().filter(|row| row.score.is_wanted()).count()
    }
}

/// A range of numbers as a range of indices.
fn indices(range: &Range<u32>) -> Range<usize> {
    as_index(range.start)..as_index(range.end)
}

/// What one forward pass returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchOutput {
    /// One candidate per scored row, in row order.
    pub candidates: Vec<Candidate>,
    /// The most probable tokens of the rows that want them, in row order: exactly
    /// [`Score::tops`] entries a row by falling probability, the lower id first on ties. Like a
    /// candidate's probability they follow the biases and the allowed set and precede the noise.
    pub tops: Vec<TopToken>,
}

/// One of a row's most probable tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopToken {
    /// The token; never the mask.
    pub token: TokenId,
    /// Natural logarithm of its probability; minus infinity once no allowed token is left.
    pub logprob: f32,
}

/// What a row may see of its own sequence: how the weights were trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Everything, in both directions. K/V depend on what stands to the right, so those of a
    /// prefix age.
    Full,
    /// Its own block of so many positions and every block before it, blocks counted from position
    /// 0. K/V of a finished block are exact.
    Blocks(u32),
    /// The rows before it in the order they are given: committed tokens in front, masks behind,
    /// each at its own position (WeDLM §3). K/V are exact once everything before is committed.
    Causal,
}

/// Where the prediction for a position is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readout {
    /// At the position's own row.
    Own,
    /// At the row of the position before it, as in the autoregressive model that the weights come
    /// from.
    Previous,
}

/// What an executor can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorSpec {
    /// Slots per KV page.
    pub page_size: u32,
    /// Number of KV pages.
    pub pages: u32,
    /// Number of tokens with a logit.
    pub vocab_size: u32,
    /// Positions the model was built for (prompt plus generation).
    pub max_positions: u32,
    /// The mask token, never a candidate.
    pub mask: TokenId,
    /// What rows may see.
    pub attention: Attention,
    /// Where predictions are read.
    pub readout: Readout,
}

/// A forward pass that did not happen; the K/V of the batch's rows are undefined.
#[derive(Debug, thiserror::Error)]
#[error("forward pass failed: {0}")]
pub struct ExecuteError(pub String);

/// Runs forward passes. Owned by the engine thread.
pub trait Executor: Send {
    /// Sizes that do not change.
    fn spec(&self) -> ExecutorSpec;

    /// Starts the pass of `batch` where it can run by itself, so that the caller has other work
    /// done before [`Self::execute`] waits for it; elsewhere does nothing.
    ///
    /// # Errors
    /// As [`Self::execute`], which is not called then.
    fn begin(&mut self, batch: &Batch) -> Result<(), ExecuteError> {
        let _ = batch;
        Ok(())
    }

    /// Runs `batch`, or waits for it if it was begun, and replaces the content of `output`.
    ///
    /// # Errors
    /// If the pass failed; the batch's sequences cannot go on, others can.
    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError>;
}
