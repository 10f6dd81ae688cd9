//! What a step changed, as values: the engine performs them, tests compare them.

use crate::TokenId;
use crate::coordinates::{Offset, as_index};

/// A lane of one sequence, numbered in order of birth; the root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

impl LaneId {
    /// Its number as an index into a slice.
    pub const fn index(self) -> usize {
        as_index(self.0)
    }
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Advances the frontier of lanes.
    Generate,
    /// Finishes a prefix behind a fork.
    Refine,
}

/// How a token came to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitKind {
    /// A mask of a lane.
    Masked,
    /// A mask of the lookahead window, beyond the lane.
    Draft,
    /// A committed token rewritten by an edit rule.
    Edit,
}

/// What one forward pass is to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardKind {
    /// The sequence's first forward.
    Prefill,
    /// Lane rows against cached K/V (all rows under the cache policy `none`).
    Decode,
    /// Renews the K/V of a whole range; its logits serve the step's commits.
    Refresh,
}

/// Why a sequence is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoneReason {
    /// The emitted prefix ends at a stop token.
    StopToken,
    /// The budget is full.
    Budget,
    /// The last lane used its budget up without settling its first offset; the output ends
    /// before that offset.
    LaneBudget,
    /// The grammar is fulfilled and nothing may follow.
    Complete,
    /// The grammar cannot be followed any further.
    Failed,
}

/// One change of a sequence's decoding state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// A token was written at a generated offset, or a placed one became final.
    Commit {
        /// Where.
        offset: Offset,
        /// What.
        token: TokenId,
        /// Confidence of the candidate, in `0.0..=1.0`.
        probability: f64,
        /// How.
        kind: CommitKind,
    },
    /// A token was written at a generated offset and may be revoked (under a grammar only).
    Place {
        /// Where.
        offset: Offset,
        /// What.
        token: TokenId,
        /// Confidence of the candidate, in `0.0..=1.0`.
        probability: f64,
    },
    /// A placed token is a mask again.
    Revoke {
        /// Where.
        offset: Offset,
    },
    /// A committed stop token cut the canvas: offsets `len..` are gone.
    Shorten {
        /// Offsets left.
        len: u32,
    },
    /// A generate lane became an inner node; its children start right after this effect.
    Fork {
        /// The lane.
        lane: LaneId,
        /// p: the refine child is `[start, start + split)`.
        split: u32,
    },
    /// A lane was born.
    Start {
        /// The lane.
        lane: LaneId,
        /// Its role.
        role: Role,
        /// Who forked or spawned it; `None` for the root.
        parent: Option<LaneId>,
        /// First offset.
        start: Offset,
        /// Offsets owned.
        len: u32,
        /// Whether it takes part in the next step, or waits for its sibling (`coupled`), or was
        /// born without work to do.
        birth: Birth,
    },
    /// The end of an active lane moved.
    Resize {
        /// The lane.
        lane: LaneId,
        /// Offsets owned from now on.
        len: u32,
    },
    /// A waiting lane takes part from the next step on.
    Wake {
        /// The lane.
        lane: LaneId,
    },
    /// A lane is done; a generate lane shrinks to `valid` offsets.
    Finish {
        /// The lane.
        lane: LaneId,
        /// v: offsets before its first mask or stop token.
        valid: u32,
    },
    /// The emitted prefix grew: offsets `from..to` are final and may be streamed.
    Advance {
        /// Old end of the emitted prefix.
        from: Offset,
        /// New end.
        to: Offset,
    },
    /// Nothing more will be generated; every remaining lane is dropped.
    Done {
        /// Why.
        reason: DoneReason,
    },
}

/// How a lane begins its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Birth {
    /// Active from the next step on.
    Active,
    /// Waits for its refine sibling (`coupled`).
    Waiting,
    /// Nothing was left to do: no mask before its end or first stop token.
    Finished,
}
