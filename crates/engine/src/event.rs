//! Events of a sequence.

use decode::{Effect, ForwardKind, LaneId, Offset, Position, TokenId, as_index};
use step::TopToken;

use crate::counts::{ByKind, CommitCounts};

/// An event of a sequence. Order: `Started`, any of `Tokens` and `Step` or one `Labels`, then exactly
/// one of `Finished`, `Refused` and `Failed`.
#[derive(Clone, Debug)]
pub enum Event {
    /// The sequence left the queue; its first forward can be in the same step.
    Started,
    /// The frontier moved: the next committed tokens in output order. Final.
    Tokens {
        /// The tokens.
        chunk: TokenChunk,
        /// The cost up to and including the step that moved the frontier. It is the final cost for
        /// a caller that drops the sequence here, because a stop string is complete.
        stats: SequenceStats,
        /// One entry per token, if the request wants probabilities.
        logprobs: Option<Box<[TokenLogprob]>>,
    },
    /// One step of a traced sequence. A chunk of its prompt is no step.
    Step(Box<StepTrace>),
    /// The distributions that were read ([`crate::Labels`]): for each offset in order, every token with
    /// its log-probability among all tokens, the most probable first. A token that cannot stand there
    /// is replaced by an entry of minus infinity.
    Labels(Box<[TopToken]>),
    /// The sequence is complete. Last event.
    Finished(Finished),
    /// The grammar of the request cannot go on: it is too complex, or no text continues it. The
    /// fault is the request's. Last event.
    Refused {
        /// The reason, one line.
        message: String,
    },
    /// The sequence failed, through no fault of its request. Last event.
    Failed {
        /// The reason, one line.
        message: String,
    },
}

impl Event {
    /// Returns true if no event of the sequence follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Refused { .. } | Self::Failed { .. })
    }
}

/// The log-probability of an emitted token in the forward that committed it, without noise.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability, `<= 0`; 0 for one that a grammar forces.
    pub logprob: f32,
    /// The most probable tokens, as many as the request wants; impossible tokens are left out.
    pub top: Box<[TopToken]>,
}

impl TokenLogprob {
    /// The entry of a token beside which no other is possible.
    pub fn certain(token: TokenId) -> Self {
        Self { logprob: 0.0, top: [TopToken { token, logprob: 0.0 }].into() }
    }
}

/// A few tokens, stored inline so that the step loop allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenChunk {
    len: u8,
    tokens: [TokenId; as_index(Self::CAPACITY)],
}

impl TokenChunk {
    /// Most tokens of one chunk.
    pub const CAPACITY: u32 = 14;

    /// The tokens.
    pub fn as_slice(&self) -> &[TokenId] {
        &self.tokens[..usize::from(self.len)]
    }
}

impl FromIterator<TokenId> for TokenChunk {
    /// The first [`Self::CAPACITY`] tokens.
    fn from_iter<I: IntoIterator<Item = TokenId>>(tokens: I) -> Self {
        let mut chunk = Self::default();
        for (slot, token) in chunk.tokens.iter_mut().zip(tokens) {
            *slot = token;
            chunk.len += 1;
        }
        chunk
    }
}

/// The reason for which a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// A stop token follows the emitted tokens, or the grammar is complete.
    Stop,
    /// The budget or `max_forwards` is used up.
    Length,
}

/// The end of a generated sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// The reason.
    pub reason: FinishReason,
    /// The stop token that follows the emitted tokens.
    pub stop_token: Option<TokenId>,
    /// Its cost.
    pub stats: SequenceStats,
}

/// The cost of one sequence, as `usage.diffusion` reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceStats {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the prompt whose K/V were cached.
    pub cached_tokens: u32,
    /// Emitted tokens: left of the frontier and of the first stop token.
    pub emitted_tokens: u32,
    /// Forwards that gave the sequence candidates. Of a prompt that is split, the one that ends its
    /// prefill is among them.
    pub passes: ByKind<u32>,
    /// Forwards over other parts of a prompt that is split. They give no candidates and are not among
    /// `passes`: their number depends on the cached tokens.
    pub chunks: u32,
    /// Rows computed in all forwards, chunks of the prompt included.
    pub positions: u64,
    /// All commits: tokens after the end included.
    pub commits: CommitCounts,
    /// Forwards that checked guesses of the model itself, and their commits.
    pub checks: CheckCounts,
    /// Lanes that ever existed.
    pub lanes: u32,
    /// Forks.
    pub forks: u32,
    /// Drafts of a draft model, or copied from the text; not among the counts above.
    pub draft_model: DraftStats,
}

/// Forwards that checked guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// The forwards.
    pub forwards: u32,
    /// Their commits; over `forwards` the accepted length.
    pub tokens: u32,
}

/// The work of a draft model for one sequence, or copies of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// The draft model's forward passes.
    pub forwards: u32,
    /// Rows of those passes.
    pub positions: u64,
    /// Tokens that were proposed.
    pub drafted: u32,
    /// Tokens among them that the model confirmed.
    pub verified: u32,
}

impl SequenceStats {
    /// NFE: forward passes that gave the sequence candidates.
    pub fn forwards(&self) -> u32 {
        self.passes.prefill + self.passes.decode + self.passes.refresh
    }
}

/// One step of a traced sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTrace {
    /// The sequence's step, from 1.
    pub step: u32,
    /// The kind of the forward.
    pub kind: ForwardKind,
    /// Lanes that took part.
    pub lanes: Vec<LaneId>,
    /// Positions of the forwarded rows, per segment.
    pub rows: Vec<Vec<Position>>,
    /// Everything that changed, in order.
    pub effects: Vec<Effect>,
    /// The tokens that the step drew for the offsets of a canvas of noise that are open after it, by offset: at
    /// most one entry per position of the canvas. Empty for weights with masks.
    pub draws: Vec<Draw>,
    /// End of the emitted prefix after the step: the first offset that holds no committed token,
    /// or the first stop token.
    pub frontier: Offset,
    /// Offsets of the canvas, after the step.
    pub canvas: u32,
}

/// A token that a step drew for an open offset of a canvas of noise (DiffusionGemma).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The offset.
    pub offset: Offset,
    /// The token.
    pub token: TokenId,
    /// Its probability, in `0.0..=1.0`.
    pub probability: f64,
    /// True if it stands there in the next forward pass. Otherwise noise does.
    pub kept: bool,
}
