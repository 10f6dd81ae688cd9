//! The contract of one forward pass: plain data between the engine and the model.
//!
//! A [`Batch`] consists of segments, one per page table, whose rows lie packed without padding. In each
//! layer the executor first writes every row's K/V to its slot, then every row attends to the slots of
//! its segment that [`Row::sees`] names. `visible_end` alone expresses full, block-causal and causal
//! attention, `beyond` adds trees and verifier rows: no mask tensor exists.
#![deny(missing_docs)]

use std::ops::Range;

use decode::{AttentionKind, mix};

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

/// The output of an executor for a row, in addition to its K/V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Nothing: only the row's K/V are needed, and it never reaches the LM head.
    None,
    /// One [`Candidate`].
    Candidate,
    /// One [`Candidate`], and this number of most probable tokens into [`BatchOutput::tops`].
    Top(u8),
    /// The same, where only tokens of a set are listed. The set bans nothing: probabilities are those
    /// among all tokens.
    Among {
        /// Number of a set of [`Batch::allowed`].
        set: u32,
        /// Number of tokens to list.
        count: u8,
    },
}

impl Score {
    /// Returns true if a candidate is wanted.
    pub fn is_wanted(self) -> bool {
        self != Self::None
    }

    /// Number of entries of [`BatchOutput::tops`] wanted.
    pub fn tops(self) -> usize {
        match self {
            Self::None | Self::Candidate => 0,
            Self::Top(count) | Self::Among { count, .. } => usize::from(count),
        }
    }

    /// The set whose tokens alone are listed.
    pub fn among(self) -> Option<u32> {
        match self {
            Self::Among { set, .. } => Some(set),
            Self::None | Self::Candidate | Self::Top(_) => None,
        }
    }
}

/// One query position.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The input token, often the mask.
    pub token: TokenId,
    /// The position of the token in the text, for RoPE and for the sampling noise.
    pub position: Position,
    /// Slot of the segment's page table that this row's K/V is written to: slot `s` lies in
    /// the table's page `s / page_size` at index `s % page_size`.
    pub slot: Slot,
    /// The row attends to the slots `[0, visible_end)` of its segment; its own slot need not be among
    /// them. Every slot below [`Row::reach`] was written, by this pass or an earlier one. Layers with a
    /// window narrow the range themselves.
    pub visible_end: Slot,
    /// For every set bit `b`, the row attends to slot `visible_end + b` too: the ancestors of a
    /// node in a tree of up to 64 drafts, or the own slot of a verifier row (S2D2,
    /// arXiv 2603.25702).
    pub beyond: u64,
    /// The output that is wanted.
    pub score: Score,
    /// Range of [`Batch::biases`] that apply to this row's logits, in order; rows may share a range.
    pub biases: Range<u32>,
    /// Number of a set of [`Batch::allowed`]; tokens outside it are banned, and left out of the mean embedding
    /// of a denoised row. `None` allows all.
    pub allowed: Option<u32>,
    /// For a canvas model ([`Attention::Canvas`]): the row belongs to a canvas that is denoised; `None`
    /// is a final token that is encoded. Other models read all rows alike.
    pub denoise: Option<Denoise>,
    /// The row belongs to an open block ([`Attention::OpenBlock`]), of which no K/V are kept. A drafter
    /// reads such rows in place of the model, if there is one.
    pub open: bool,
}

/// A row of a canvas that is denoised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denoise {
    /// True if the row's input has the mean embedding under the last distribution that a pass gave
    /// the same slot. The slot must have been that of a denoised and scored row in some pass before.
    pub conditioned: bool,
}

impl Row {
    /// A row that attends to the slots `[0, visible_end)` and is not scored.
    pub const fn new(token: TokenId, position: Position, slot: Slot, visible_end: Slot) -> Self {
        Self {
            token,
            position,
            slot,
            visible_end,
            beyond: 0,
            score: Score::None,
            biases: 0..0,
            allowed: None,
            denoise: None,
            open: false,
        }
    }

    /// Returns true if the row attends to a slot of its segment.
    pub const fn sees(&self, slot: Slot) -> bool {
        let (slot, end) = (slot.get(), self.visible_end.get());
        if slot < end {
            return true;
        }
        let bit = slot - end;
        bit < u64::BITS && self.beyond >> bit & 1 == 1
    }

    /// End of the slots that the row may attend to: the first slot after all that it sees, and
    /// `visible_end` at least. Saturates at the largest slot.
    pub const fn reach(&self) -> Slot {
        let bits = u64::BITS - self.beyond.leading_zeros();
        Slot::new(self.visible_end.get().saturating_add(bits))
    }

    /// Returns true if the row sees all slots below [`Row::reach`].
    pub const fn sees_prefix(&self) -> bool {
        self.beyond == 0
    }
}

/// A change of one token's logit. A positive logit is divided by `repetition`, any other is
/// multiplied by it; then `amount` is added. An amount of `f32::NEG_INFINITY` bans the token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias {
    /// The token.
    pub token: TokenId,
    /// `> 0`; 1 changes nothing, a larger value makes the token less likely.
    pub repetition: f32,
    /// Added to the logit.
    pub amount: f32,
}

impl Bias {
    /// A bias that adds `amount`.
    pub const fn add(token: TokenId, amount: f32) -> Self {
        let repetition = 1.0;
        Self { token, repetition, amount }
    }

    /// A bias that bans `token`.
    pub const fn ban(token: TokenId) -> Self {
        Self::add(token, f32::NEG_INFINITY)
    }
}

/// Number of words of one set of [`Batch::allowed`] over `vocab_size` tokens.
pub const fn set_words(vocab_size: u32) -> usize {
    as_index(vocab_size.div_ceil(32))
}

/// The draw of a candidate's token. The noise of a row depends on `seed`, `clock`, position
/// and token id alone, never on the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most probable token; above 0, Gumbel-max over `logits / temperature`.
    pub temperature: f32,
    /// Nucleus mass in `0.0..=1.0`; 1 switches it off.
    pub top_p: f32,
    /// Keeps tokens with at least this share of the best token's probability; 0 switches it off.
    pub min_p: f32,
    /// Keeps the k most probable tokens; 0 switches it off.
    pub top_k: u32,
    /// The sequence's seed.
    pub seed: u64,
    /// The number of the sequence's step.
    pub clock: u32,
    /// Logits are divided by this number, positive, before everything else: a schedule's temperature
    /// that candidates include. 1 for all models but canvas models.
    pub scale: f32,
}

impl Sampling {
    /// Temperature 0 without filters.
    pub const GREEDY: Self =
        Self { temperature: 0.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 0, clock: 0, scale: 1.0 };
}

/// The token of noise at a position of a canvas in the step `clock` of a sequence: each token of the
/// vocabulary is as likely as any other. A pure function of its arguments.
pub const fn noise_token(seed: u64, clock: u32, position: Position, vocab_size: u32) -> TokenId {
    let place = (clock as u64) << 32 | position.get() as u64;
    let key = mix(mix(seed).wrapping_add(mix(place ^ 0xA5A5_A5A5_5A5A_5A5A)));
    // No token has this number, so the noise differs from that of every candidate.
    let bits = mix(key ^ mix(1 << 32));
    (((bits >> 32) * vocab_size as u64) >> 32) as TokenId
}

/// The rows of one sequence under one page table.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Range of [`Batch::rows`].
    pub rows: Range<u32>,
    /// Range of [`Batch::pages`]: the page table, in the order of its slots.
    pub pages: Range<u32>,
    /// The draw of the candidates of this segment.
    pub sampling: Sampling,
}

/// A copy of a whole page, made before any row of the batch is written (copy on write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// The page that is read.
    pub source: PageId,
    /// The page that is written, by some row of the same batch too.
    pub destination: PageId,
}

/// The input of one forward pass. It is reused between steps: [`Batch::clear`] keeps capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// All rows, segment after segment.
    pub rows: Vec<Row>,
    /// The segments; they cover `rows` in order, without gaps.
    pub segments: Vec<Segment>,
    /// Page tables of all segments.
    pub pages: Vec<PageId>,
    /// Biases that the rows refer to.
    pub biases: Vec<Bias>,
    /// Sets of tokens that rows refer to, [`set_words`] words each: token t is bit `t % 32` of word
    /// `t / 32`.
    pub allowed: Vec<u32>,
    /// Copies to make first, in order.
    pub copies: Vec<PageCopy>,
}

impl Batch {
    /// Empties the batch and keeps its allocations.
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

    /// Number of rows that want a candidate: the length of [`BatchOutput::candidates`].
    pub fn scored(&self) -> usize {
        self.rows.iter().filter(|row| row.score.is_wanted()).count()
    }
}

/// A range of numbers as a range of indices.
fn indices(range: &Range<u32>) -> Range<usize> {
    as_index(range.start)..as_index(range.end)
}

/// The output of one forward pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchOutput {
    /// One candidate per scored row, in row order.
    pub candidates: Vec<Candidate>,
    /// The most probable tokens of the rows that want them, in row order: exactly
    /// [`Score::tops`] entries per row by falling probability, the lower id first on ties. Like a
    /// candidate's probability they include biases and the allowed set, and exclude the noise.
    pub tops: Vec<TopToken>,
}

/// One of a row's most probable tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopToken {
    /// The token; never the mask.
    pub token: TokenId,
    /// Natural logarithm of its probability; minus infinity for entries beyond the allowed tokens.
    pub logprob: f32,
}

/// The rows of its sequence that a row may attend to, as the weights were trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// All rows, in both directions. K/V depend on tokens to the right, so cached K/V of a prefix
    /// become stale.
    Full,
    /// The rows of its own block and of every block before it; blocks have this number of
    /// positions and are counted from position 0. K/V of a finished block are exact.
    Blocks(u32),
    /// A row of the prompt sees the whole prompt. Blocks of this number of positions are counted from the
    /// prompt's end: a row sees the prompt, its own block and every block before it (D2F, arXiv
    /// 2508.09192). K/V of a finished block are exact, those of the prompt depend on all of it.
    BlocksAfterPrompt(u32),
    /// The rows before it in the order of slots: committed tokens first, then masks, each at its
    /// own position (WeDLM §3). K/V are exact once every token before is committed.
    Causal,
    /// Final tokens see those up to themselves, and their logits predict the next position. The tokens
    /// of one open block, of this number of positions from the prompt's end on, see the block and all
    /// before it; the logits of a mask predict its own position. K/V of final tokens are exact once
    /// they are forwarded as such (Nemotron-Labs-Diffusion).
    OpenBlock(u32),
    /// Final tokens see those up to themselves. The tokens of the canvas, of this number of positions,
    /// see each other and all before; other weights than those of final tokens may read them
    /// ([`Row::denoise`]). K/V of final tokens are exact.
    Canvas(u32),
}

impl Attention {
    /// The kind, without the length of blocks.
    pub fn kind(self) -> AttentionKind {
        match self {
            Self::Full => AttentionKind::Full,
            Self::Blocks(_) | Self::BlocksAfterPrompt(_) => AttentionKind::BlockCausal,
            Self::Causal => AttentionKind::Causal,
            Self::OpenBlock(_) => AttentionKind::OpenBlock,
            Self::Canvas(_) => AttentionKind::Canvas,
        }
    }
}

/// The shift from a row to the position that its logits predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitShift {
    /// Logits predict the row's own position.
    None,
    /// Logits predict the next position, as in the autoregressive model that the weights come from.
    One,
}

/// Sizes and properties of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorSpec {
    /// Slots per KV page.
    pub page_size: u32,
    /// Number of KV pages.
    pub pages: u32,
    /// Number of tokens with a logit.
    pub vocab_size: u32,
    /// Most positions of a sequence, prompt and generation together.
    pub max_positions: u32,
    /// The mask token, never a candidate. `None` for autoregressive weights, which know none.
    pub mask: Option<TokenId>,
    /// The rows that a row may attend to.
    pub attention: Attention,
    /// The shift from a row to the position that its logits predict.
    pub logit_shift: LogitShift,
}

/// A failed forward pass; the K/V of the batch's rows are undefined.
#[derive(Debug, thiserror::Error)]
#[error("forward pass failed: {0}")]
pub struct ExecuteError(pub String);

/// Runs forward passes. The engine thread owns it.
pub trait Executor: Send {
    /// Its sizes and properties; they never change.
    fn spec(&self) -> ExecutorSpec;

    /// Starts the pass of `batch` if the device runs it asynchronously, so that the caller can do
    /// other work before [`Self::execute`] waits for it. Other executors do nothing.
    ///
    /// # Errors
    /// As [`Self::execute`], which the caller then does not call.
    fn begin(&mut self, batch: &Batch) -> Result<(), ExecuteError> {
        let _ = batch;
        Ok(())
    }

    /// Runs `batch`, or waits for it if [`Self::begin`] started it, and replaces the content of
    /// `output`.
    ///
    /// # Errors
    /// If the pass failed. The sequences of the batch cannot continue; others can.
    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError>;

    /// As [`Self::execute`], by an executor whose passes may take long: it calls `goes_on` between the
    /// layers, so that a long pass is told from one that hangs. Other executors never call it.
    ///
    /// # Errors
    /// As [`Self::execute`], or `goes_on` returned false.
    fn execute_while(
        &mut self,
        batch: &Batch,
        output: &mut BatchOutput,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), ExecuteError> {
        let _ = goes_on;
        self.execute(batch, output)
    }

    /// The reason for which no later pass can succeed in this process, if a failed pass has made its
    /// device unusable.
    /// The engine then fails every sequence and ends.
    fn lost(&self) -> Option<String> {
        None
    }
}
