//! The changes of a step as values: the engine performs them, tests compare them.

use crate::TokenId;
use crate::coordinates::{Offset, Span, as_index};

/// Number of a lane of one sequence, in order of start; the root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

impl LaneId {
    /// Its number as an index into a slice.
    pub const fn index(self) -> usize {
        as_index(self.0)
    }
}

/// The purpose of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Generates new text at the right end of the lanes.
    Generate,
    /// Finishes the prefix that a fork left behind.
    Refine,
}

/// The kind of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitKind {
    /// A mask of a lane.
    Masked,
    /// A mask of the lookahead window, right of the lane.
    Draft,
    /// A committed token rewritten by an edit rule.
    Edit,
}

/// A token for an offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commit {
    /// The offset.
    pub offset: Offset,
    /// The token.
    pub token: TokenId,
    /// Confidence of the candidate, in `0.0..=1.0`.
    pub probability: f64,
    /// The kind of the commit.
    pub kind: CommitKind,
}

/// The kind of a sequence's forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardKind {
    /// The sequence's first forward.
    Prefill,
    /// Lane rows against cached K/V (all rows under the cache policy `none`).
    Decode,
    /// Recomputes the K/V of a whole range; its logits serve the step's commits.
    Refresh,
}

/// The reason for which a sequence is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoneReason {
    /// A stop token follows the emitted prefix.
    StopToken,
    /// Every offset of the budget is committed.
    Budget,
    /// The last lane used up its steps without committing its first offset; the output ends before
    /// that offset.
    LaneBudget,
    /// The text is complete under the grammar, and no token may follow.
    Complete,
    /// The text cannot go on under the grammar.
    Failed,
}

/// One change of a sequence's decoding state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// A token was committed: a new one, or one placed earlier.
    Commit(Commit),
    /// A provisional token was written; it may be revoked. It exists under a grammar only.
    Place(Commit),
    /// A provisional token became a mask again.
    Revoke {
        /// The offset.
        offset: Offset,
    },
    /// A committed stop token cut the canvas: offsets `len..` are gone.
    Shorten {
        /// Number of offsets that remain.
        len: u32,
    },
    /// A generate lane became an inner node; the starts of its children follow.
    Fork {
        /// The lane.
        lane: LaneId,
        /// p: the refine child is `[start, start + split)`.
        split: u32,
    },
    /// A lane started.
    Start {
        /// The lane.
        lane: LaneId,
        /// Its role.
        role: Role,
        /// The lane that forked or finished before it; `None` for the root.
        parent: Option<LaneId>,
        /// First offset.
        start: Offset,
        /// Number of offsets it owns.
        len: u32,
        /// True if it is active, waits, or has no work.
        birth: Birth,
    },
    /// The end of an active lane moved.
    Resize {
        /// The lane.
        lane: LaneId,
        /// Number of offsets it owns from now on.
        len: u32,
    },
    /// A waiting lane is active from the next step on.
    Wake {
        /// The lane.
        lane: LaneId,
    },
    /// A lane finished; a generate lane shrinks to `valid` offsets.
    Finish {
        /// The lane.
        lane: LaneId,
        /// v: number of offsets left of its first mask or stop token.
        valid: u32,
    },
    /// The emitted prefix grew by this range: its tokens are final and may be streamed.
    Advance(Span<Offset>),
    /// The sequence is done; every remaining lane is dropped.
    Done {
        /// The reason.
        reason: DoneReason,
    },
}

/// The status in which a lane starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Birth {
    /// Active from the next step on.
    Active,
    /// Waits for its refine sibling (`coupled`).
    Waiting,
    /// Has no work: no mask left of its end or first stop token.
    Finished,
}
