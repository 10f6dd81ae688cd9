//! The interface of a commit rule.

use alloc::vec::Vec;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::Canvas;
use crate::coordinates::{Offset, Span, as_index};
use crate::lane::Lane;

/// Decides which masks of a lane are committed in a step.
pub trait CommitRule: core::fmt::Debug + Send {
    /// Puts into `chosen` the indices of `masks` to commit, in any order, without duplicates.
    ///
    /// `masks` holds the open positions of the rule's [`Scope`] by offset, at least one; `chosen` is
    /// empty. `lane` is the lane, the last active one under [`Scope::Sequence`]. A rule may change
    /// tokens and confidences in `masks`: a chosen mask is committed with the values it has there. If
    /// a rule chooses nothing, the mask of the highest [`Self::worth`] is committed, so that every
    /// active lane, or the sequence, makes progress in every step.
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>);

    /// The order of masks: where a step must commit one mask, it is the one of the highest worth, the
    /// lower offset on ties.
    fn worth(&self, mask: &Proposal) -> f64 {
        mask.candidate.probability
    }

    /// The candidates that the rule reads.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// Reads a lane's step before [`Self::select`]. It is called for lanes without masks too.
    fn observe(&mut self, _scene: &Scene<'_>) {}

    /// The observed step's demands in addition to the chosen masks.
    fn verdict(&self) -> Verdict<'_> {
        Verdict::default()
    }

    /// The guesses that the next forward verifies.
    fn guesses(&self) -> Guesses<'_> {
        Guesses::None
    }

    /// Guesses an expected text, where there is one, in place of its own guesses. `expected` begins at the
    /// lane's first mask and has no gap. Returns false, and does nothing, if guesses change the committed
    /// tokens.
    fn replace_guesses(&mut self, _expected: &[Proposal]) -> bool {
        false
    }

    /// The way the next forward reads the open positions of a canvas that has taken `clock` steps, for
    /// weights trained on noise. A rule that returns it may choose nothing in a step, and ends a canvas
    /// after a bounded number of steps.
    fn denoising(&self, _clock: u32) -> Option<Denoising<'_>> {
        None
    }
}

/// The candidates that a rule reads; they are scored for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The masks among which it makes one choice.
    pub scope: Scope,
    /// True if it reads the committed tokens of its lane.
    pub lane: bool,
    /// True if it reads the masks after its lane.
    pub canvas: bool,
    /// Offsets whose committed tokens it reads wherever a forward computes their rows.
    pub watched: Span<Offset>,
}

/// The masks among which a rule makes one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The masks of one lane: every active lane has a choice of its own, and commits at least one mask.
    /// Drafts in the lookahead are committed by the schedule's threshold alone.
    #[default]
    Lane,
    /// The masks of all active lanes, and the masks of the lookahead whose candidates reach the
    /// schedule's draft threshold and are no stop tokens. A step commits at least one of them.
    Sequence,
}

/// A lane's step, for rules that read more than its masks.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The lane.
    pub lane: &'a Lane,
    /// The generated tokens.
    pub canvas: &'a Canvas,
    /// Every scored candidate, of masks and committed tokens alike, by offset.
    pub proposals: &'a [Proposal],
    /// The guesses among [`Checks::guesses`] that the forward checked.
    pub checked: &'a [Proposal],
}

/// The demands of a step in addition to the chosen masks.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// Committed tokens of the lane to rewrite.
    pub edits: &'a [Proposal],
    /// True if the lane may finish and its tokens are final. An editing rule says no while tokens may
    /// still change.
    pub settled: bool,
    /// True if every scored mask is committed in this step, chosen or not.
    pub fills: bool,
    /// A stop token at a mask that is committed wherever it lies: the rule expects the end of the text
    /// there. It is ignored under a grammar, and where stop tokens do not cut the canvas.
    pub end: Option<Proposal>,
}

impl Default for Verdict<'_> {
    /// No edits, a settled lane.
    fn default() -> Self {
        Self { edits: &[], settled: true, fills: false, end: None }
    }
}

/// Guesses of a rule that the next forward verifies.
#[derive(Clone, Copy, Debug, Default)]
pub enum Guesses<'a> {
    /// The rule guesses nothing.
    #[default]
    None,
    /// Guessed canvases beside the real one.
    Branches(Branches<'a>),
    /// Guesses that are checked from left to right. Only for a rule whose description says
    /// [`Requirements::checks`](super::Requirements::checks).
    Checks(Checks<'a>),
}

/// Nested guessed canvases: branch b is the canvas with the first `ends[b - 1]` guesses filled in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Branches<'a> {
    /// The guesses in the order of filling.
    pub proposals: &'a [Proposal],
    /// Number of guesses of each branch, rising; the last one is the number of proposals.
    pub ends: &'a [usize],
    /// The condition under which the guesses of a branch are true.
    pub verification: Verification,
}

/// The condition under which the guesses of a branch are true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// The rule chooses exactly the next branch's guesses; its choice on that branch is the next
    /// step.
    #[default]
    Equal,
    /// The rule's choice contains the guesses of a later branch. The boldest such branch is
    /// committed, and the rule chooses anew on it.
    Sanctioned,
}

impl<'a> Branches<'a> {
    /// Number of branches beside the canvas as it stands.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The guesses of branch `branch`, counted from 1; 0 is the canvas as it stands.
    pub fn filled(&self, branch: usize) -> &'a [Proposal] {
        let before = branch.checked_sub(1);
        &self.proposals[..before.map_or(0, |before| self.ends[before])]
    }
}

/// Guesses for masks of the lane, from left to right without a gap, that the next forward checks: it
/// computes the candidate of each given the tokens and guesses before it alone. They are checked up to
/// the first stop token, and not under a grammar. A position has the same sampling noise in all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks<'a> {
    /// The guesses.
    pub guesses: &'a [Proposal],
    /// True if they are checked at the row of the token before, as in an autoregressive model, and not
    /// at a mask.
    pub ahead: bool,
    /// True if a step that chose nothing commits nothing, because its guesses are checked first.
    pub waits: bool,
}

/// The way a forward reads a canvas of noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Denoising<'a> {
    /// The divisor of logits before candidates are made of them, positive.
    pub temperature: f64,
    /// True if a forward has read the canvas before.
    pub conditioned: bool,
    /// The first offset of the canvas.
    pub start: Offset,
    /// The tokens that stand in the canvas by distance from `start`; `None` is noise.
    pub kept: &'a [Option<TokenId>],
}

impl Denoising<'_> {
    /// The token that stands at an open offset; noise stands there if there is none.
    pub fn token(&self, offset: Offset) -> Option<TokenId> {
        let index = offset.checked_distance_from(self.start)?;
        self.kept.get(as_index(index)).copied().flatten()
    }
}
