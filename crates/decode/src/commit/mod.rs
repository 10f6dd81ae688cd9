//! Commit rules: which of a lane's candidates are written in a step.

mod capped;
mod causal_check;
mod credit;
mod draft_verify;
mod early_commit;
mod edit;
mod entropy;
mod entropy_bound;
mod factor;
mod hierarchy;
mod info;
mod joint_bound;
mod learned_filter;
mod local_leap;
mod margin;
mod nested_drafts;
mod renoise;
mod routers;
mod scheduled;
mod self_speculative;
mod threshold;
mod top_k;

use alloc::vec::Vec;

use crate::candidate::{Proposal, TokenId};
use crate::canvas::Canvas;
use crate::coordinates::{Offset, Span};
use crate::describe::{AttentionKind, Company};
use crate::lane::Lane;

pub use capped::Capped;
pub use causal_check::CausalCheck;
pub use credit::Credit;
pub use draft_verify::DraftVerify;
pub use early_commit::{AnswerSpan, EarlyCommit};
pub use edit::Edit;
pub use entropy::Entropy;
pub use entropy_bound::EntropyBound;
pub use factor::Factor;
pub use hierarchy::Hierarchy;
pub use info::{CommitConfig, CommitHost, CommitInfo, CommitInput, Requirements};
pub use joint_bound::JointBound;
pub use learned_filter::{Filter, FilterError, LearnedFilter, Weights};
pub use local_leap::LocalLeap;
pub use margin::Margin;
pub use nested_drafts::NestedDrafts;
pub use renoise::Renoise;
pub use scheduled::{Rank, Scheduled};
pub use self_speculative::SelfSpeculative;
pub use threshold::Threshold;
pub use top_k::TopK;

/// Every commit rule, in the order in which requests fall back to them.
pub const COMMITS: &[&CommitInfo] = &[
    &threshold::INFO,
    &top_k::INFO,
    &scheduled::INFO,
    &factor::INFO,
    &entropy::INFO,
    &entropy_bound::INFO,
    &joint_bound::INFO,
    &margin::INFO,
    &capped::INFO,
    &credit::INFO,
    &local_leap::INFO,
    &hierarchy::INFO,
    &early_commit::INFO,
    &learned_filter::INFO,
    &draft_verify::INFO,
    &nested_drafts::INFO,
    &causal_check::INFO,
    &self_speculative::INFO,
    &edit::INFO,
    &renoise::INFO,
];

/// For rules that decide about a block as a whole.
const BLOCKS: Company = Company::Only(&["block_wise"]);
/// For rules that need every mask of the block scored in every forward.
const WHOLE_BLOCK: Company = Company::Only(&["none", "prefix", "dual"]);
/// For rules that guess: each guessed canvas has K/V of its own for the masks of the block.
const GUESSED_BLOCK: Company = Company::Only(&["none", "prefix", "dual", "exact"]);
/// As [`GUESSED_BLOCK`], for rules that guess on lanes too.
const GUESSED_LANES: Company = Company::Only(&["none", "prefix", "dual", "fused", "exact"]);
/// The weights that forwards over guessed canvases are written for.
const GUESSABLE: &[AttentionKind] = &[AttentionKind::Full, AttentionKind::BlockCausal];

/// Most guesses that a forward checks: as many single slots a row can name beyond its range
/// (`step::Row::beyond`), less its own.
pub(crate) const MOST_CHECKED: u32 = 63;

/// Decides which masks of a lane are committed in this step.
pub trait CommitRule: core::fmt::Debug + Send {
    /// Puts into `chosen` the indices of `masks` to commit, in any order, without duplicates.
    ///
    /// `masks` holds the open positions of the rule's [`Scope`] by offset, at least one; `chosen` is
    /// empty. `lane` is the lane, the last active one under [`Scope::Sequence`]. A rule may change tokens and confidences in `masks`: a chosen mask is committed with the values it
    /// has there. If a rule chooses nothing, the mask of the highest [`Self::worth`] is committed, so
    /// that every active lane, or the sequence, makes progress in every step.
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>);

    /// The order of masks: where a step must commit one mask, it is the one of the highest worth, the
    /// lower offset on ties.
    fn worth(&self, mask: &Proposal) -> f64 {
        mask.candidate.probability
    }

    /// Among which masks it chooses.
    fn scope(&self) -> Scope {
        Scope::Lane
    }

    /// What the rule reads besides the masks of its lane.
    fn reads(&self) -> Reads {
        Reads::Masks
    }

    /// Offsets whose committed tokens it reads too, wherever a forward computes their rows.
    fn watches(&self) -> Span<Offset> {
        Span::default()
    }

    /// Reads a lane's step before [`Self::select`]. Called for lanes without masks too.
    fn observe(&mut self, _scene: &Scene<'_>) {}

    /// Committed tokens of the lane to rewrite, found by [`Self::observe`].
    fn edits(&self) -> &[Proposal] {
        &[]
    }

    /// Whether the lane may finish and its tokens are final. An editing rule returns false while
    /// tokens may still change.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether every scored mask is committed in this step, whatever was chosen.
    fn fills(&self) -> bool {
        false
    }

    /// A stop token at a mask that is committed besides the choice, wherever it lies: the rule expects
    /// the end of the text there. Ignored under a grammar, and where stop tokens do not cut the canvas.
    fn expects_end(&self) -> Option<Proposal> {
        None
    }

    /// Guesses for the next forward, which runs over nested guessed canvases beside the real one.
    fn guesses(&self) -> Guesses<'_> {
        Guesses::default()
    }

    /// What makes guesses true.
    fn verification(&self) -> Verification {
        Verification::Equal
    }

    /// Guesses for masks of the lane, from left to right without a gap, that the next forward checks: it
    /// computes the candidate of each given the tokens and guesses before it alone. They are checked
    /// up to the first stop token, and not under a grammar. Only for a rule whose description says
    /// [`Requirements::checks`].
    fn guesses_to_check(&self) -> &[Proposal] {
        &[]
    }

    /// Whether checks are read at the row of the token before, as in an autoregressive model, and not at a
    /// mask.
    fn checks_ahead(&self) -> bool {
        false
    }

    /// Whether a step that chose nothing commits nothing: its guesses are checked first.
    fn waits(&self) -> bool {
        false
    }

    /// Whether a position has the same sampling noise in all steps.
    fn keeps_noise(&self) -> bool {
        false
    }

    /// For weights trained on noise: how the next forward reads the open positions of a canvas that has
    /// taken `clock` steps. A rule that returns it may choose nothing in a step, and ends a canvas after
    /// a bounded number of steps.
    fn denoising(&self, _clock: u32) -> Option<Denoising> {
        None
    }

    /// The token that stands at an open offset in the next forward; without one noise stands there.
    fn stands_at(&self, _offset: Offset) -> Option<TokenId> {
        None
    }
}

/// How a forward reads a canvas of noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Denoising {
    /// What logits are divided by before candidates are made of them, positive.
    pub temperature: f64,
    /// Whether a forward read the canvas before.
    pub conditioned: bool,
}

/// What makes the guesses of a branch true.
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

/// The masks among which a rule makes one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of one lane: every active lane has a choice of its own, and commits at least one mask.
    /// Drafts in the lookahead are committed by the schedule's threshold alone.
    #[default]
    Lane,
    /// Those of all active lanes, and the masks of the lookahead whose candidates reach the
    /// schedule's draft threshold and are no stop tokens. A step commits at least one of them.
    Sequence,
}

/// What a rule reads besides the masks of its lane; it is scored for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// Nothing.
    #[default]
    Masks,
    /// The committed tokens of its lane.
    Lane,
    /// The masks after its lane.
    Canvas,
    /// Both.
    LaneAndCanvas,
}

impl Reads {
    /// Whether it reads the committed tokens of its lane.
    pub fn lane(self) -> bool {
        matches!(self, Self::Lane | Self::LaneAndCanvas)
    }

    /// Whether it reads the masks after its lane.
    pub fn canvas(self) -> bool {
        matches!(self, Self::Canvas | Self::LaneAndCanvas)
    }
}

/// A lane's step, for rules that read more than its masks.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The lane.
    pub lane: &'a Lane,
    /// The generated tokens.
    pub canvas: &'a Canvas,
    /// Everything that was scored, by offset; masks and committed tokens alike.
    pub proposals: &'a [Proposal],
    /// Those of [`CommitRule::guesses_to_check`] that the forward checked.
    pub checked: &'a [Proposal],
}

/// Masks that a forward is tried with: branch b is the canvas with the first `ends[b - 1]` filled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guesses<'a> {
    /// What is put where, in the order of filling.
    pub proposals: &'a [Proposal],
    /// Number of guesses of each branch, rising; the last one is the number of proposals.
    pub ends: &'a [usize],
}

impl Guesses<'_> {
    /// Branches beside the canvas as it stands.
    pub fn branches(&self) -> usize {
        self.ends.len()
    }

    /// Number of guesses in branch `branch`, counted from 1; 0 is the canvas as it stands.
    pub fn filled(&self, branch: usize) -> usize {
        let before = branch.checked_sub(1);
        before.map_or(0, |before| self.ends[before])
    }
}

/// Number of guesses from the left that equal the candidates of `masks`, which begin at the first
/// guess.
fn confirmed(masks: &[Proposal], guesses: &[Proposal]) -> usize {
    let pairs = masks.iter().zip(guesses);
    let equal = |(mask, guess): &(&Proposal, &Proposal)| {
        mask.offset == guess.offset && mask.candidate.token == guess.candidate.token
    };
    pairs.take_while(equal).count()
}

/// Index of the mask with the highest worth, the lower offset on ties; 0 of none.
pub(crate) fn best_by(masks: &[Proposal], worth: impl Fn(&Proposal) -> f64) -> usize {
    let mut best = 0;
    for (index, proposal) in masks.iter().enumerate().skip(1) {
        if worth(proposal) > worth(&masks[best]) {
            best = index;
        }
    }
    best
}

/// Puts all masks into `chosen`, most confident first, lower offsets first on ties.
fn by_confidence(masks: &[Proposal], chosen: &mut Vec<usize>) {
    by_worth(masks, |mask| mask.candidate.probability, chosen);
}

/// Puts all masks into `chosen`, the highest worth first, lower offsets first on ties.
fn by_worth(masks: &[Proposal], worth: impl Fn(&Proposal) -> f64, chosen: &mut Vec<usize>) {
    let worth = |index: &usize| worth(&masks[*index]);
    chosen.extend(0..masks.len());
    chosen.sort_unstable_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.cmp(b)));
}
