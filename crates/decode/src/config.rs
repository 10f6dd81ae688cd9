//! What a decoder is made of: schedule, commit rule and the stop behaviour, all validated.

use crate::commit::{AnswerSpan, Rank};

/// Everything `decode` needs to know of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Which lanes exist and run.
    pub schedule: ScheduleConfig,
    /// Which candidates are committed.
    pub commit: CommitConfig,
    /// Whether a committed stop token cuts the canvas behind it (AsyncLane §2.5).
    pub prune: bool,
    /// Whether the sequence ends once its emitted prefix reaches a stop token; off only for the
    /// published form of the block-wise samplers, which fill the whole canvas.
    pub early_stop: bool,
}

/// The lane schedule and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleConfig {
    /// Semi-autoregressive blocks, left to right (LLaDA, Fast-dLLM).
    BlockWise {
        /// Positions per block, `>= 1`; the last block may be shorter.
        block_length: u32,
    },
    /// Blocks that end where the model expects a delimiter (AdaBlock-dLLM).
    AdaptiveBlock {
        /// Positions of a block without such a delimiter, `>= 1`.
        block_length: u32,
        /// Confidence that a delimiter needs, in `0.0..=1.0`.
        delimiter_threshold: f64,
    },
    /// Several open blocks (d3LLM-TF).
    MultiBlock {
        /// Positions per block, `>= 1`.
        block_length: u32,
        /// Share of the last block that must be filled before the next one opens, in `0.0..=1.0`.
        add_threshold: f64,
    },
    /// A sliding window (Window-Diffusion).
    Window {
        /// Masks that may be committed, `>= 1`.
        active: u32,
        /// Masks that are seen, `>= active`.
        outer: u32,
        /// Steps before everything is forwarded again, `>= 1`.
        cycle: u32,
    },
    /// The first offsets behind the frontier, sliding (WeDLM).
    Streaming {
        /// W: offsets, committed ones among them, `>= 1`.
        window: u32,
    },
    /// Asynchronous lanes (arXiv 2606.08411).
    AsyncLane(AsyncLaneConfig),
}

/// Parameters of the AsyncLane schedule. The paper prints none of these constants; defaults
/// are in the presets of the crate `engine`.
#[derive(Clone, Debug, PartialEq)]
pub struct AsyncLaneConfig {
    /// B: length of a generate lane, `>= 1`.
    pub block_length: u32,
    /// w: positions behind the generate lane that are scored and may be drafted.
    pub lookahead: u32,
    /// τ_draft: confidence a draft needs; `None` commits no drafts.
    pub draft_threshold: Option<f64>,
    /// Where a generate lane may fork; `None` = never.
    pub fork: Option<Boundary>,
    /// ρ_min: share of the lane that must be filled before it forks, in `0.0..=1.0`.
    pub min_fill: f64,
    /// t_min: steps the lane must have run before it forks.
    pub min_clock: u32,
    /// Whether a lane that is already full forks at its last delimiter too.
    pub fork_when_complete: bool,
    /// Most lanes active at once, `>= 1`; a fork that would exceed it waits.
    pub max_lanes: u32,
    /// Whether a generate lane ends after as many steps as it has offsets left on a canvas that
    /// was cut, whatever is still open in it (§3.1, t = budget); if that is its first offset,
    /// generation ends there. Without it such a lane goes on until it is complete.
    pub lane_budget: bool,
    /// Ablation: the continuation waits until its refine lane has finished.
    pub coupled: bool,
}

/// The delimiter rule of a fork (AsyncLane §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// A full stop that is not a numeric period.
    Sentence(NumericPeriod),
    /// The end of a settled code line.
    Newline,
    /// Newline inside a code fence or after a code-shaped prompt, else sentence.
    Auto(NumericPeriod),
}

/// When a full stop behind a digit ends a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumericPeriod {
    /// Once the next token is known and does not start with a digit.
    Next,
    /// Never (the paper's predicate read literally).
    Strict,
}

/// The commit rule and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitConfig {
    /// The k most confident masks of a lane in every step.
    TopK {
        /// k, `>= 1`.
        tokens_per_step: u32,
    },
    /// As many of the surest masks as a timetable says (Dream).
    Scheduled {
        /// T: steps of a lane, `>= 1`; `None` = as many as it has offsets.
        steps: Option<u32>,
        /// Which masks are the surest.
        rank: Rank,
    },
    /// Every mask whose confidence reaches the threshold, at least the best one.
    Threshold {
        /// τ in `0.0..=1.0`.
        threshold: f64,
    },
    /// The n most confident masks with c_(n) >= 1 - f / (n + 1).
    Factor {
        /// f, above 0.
        factor: f64,
    },
    /// Every mask whose entropy is at most the threshold.
    Entropy {
        /// θ in nats, `>= 0`.
        threshold: f64,
        /// λ in nats per position behind the lane's first mask, `>= 0`.
        penalty: f64,
    },
    /// The masks of the lowest entropies, as long as those before sum to at most the bound.
    EntropyBound {
        /// γ in nats, `>= 0`.
        bound: f64,
    },
    /// Every mask whose best token leads by the threshold.
    Margin {
        /// τ in `0.0..=1.0`.
        threshold: f64,
    },
    /// A threshold, and a most.
    Capped {
        /// θ in `0.0..=1.0`.
        threshold: f64,
        /// k, `>= 1`.
        most: u32,
    },
    /// A threshold, and a lower one near what passes it.
    LocalLeap {
        /// τ of anchors, in `0.0..=1.0`.
        threshold: f64,
    },
    /// A threshold, and the best of every run of masks.
    Hierarchy {
        /// τ in `0.0..=1.0`.
        threshold: f64,
    },
    /// A threshold on confidences that grow while a token stays the favourite.
    Credit {
        /// τ in `0.0..=1.0`.
        threshold: f64,
    },
    /// Top-k, until the answer's place is certain; then everything at once.
    EarlyCommit {
        /// k, `>= 1`.
        tokens_per_step: u32,
        /// Where the answer stands.
        answer: AnswerSpan,
    },
    /// What a small trained network accepts; needs [`Input::filter`](crate::Input::filter).
    LearnedFilter {
        /// τ_acc in `0.0..=1.0`.
        threshold: f64,
    },
    /// Top-k, with the following steps guessed and verified in the same forward.
    DraftVerify {
        /// k, `>= 1`.
        tokens_per_step: u32,
        /// D: canvases of a forward, `>= 1`.
        draft_steps: u32,
    },
    /// A threshold for masks, and another one at which committed tokens of the block are
    /// rewritten.
    Edit {
        /// τ_mask in `0.0..=1.0`.
        threshold: f64,
        /// τ_edit in `0.0..=1.0`; 0 = whenever the favourite differs.
        edit_threshold: f64,
        /// Most forwards of a block after its last mask, `>= 1`.
        most_passes: u32,
    },
}

impl DecoderConfig {
    /// Most lanes active at once.
    pub fn max_lanes(&self) -> u32 {
        match &self.schedule {
            ScheduleConfig::AsyncLane(config) => config.max_lanes,
            _ => 1,
        }
    }

    /// Whether continuations wait for their refine lanes.
    pub fn is_coupled(&self) -> bool {
        matches!(&self.schedule, ScheduleConfig::AsyncLane(config) if config.coupled)
    }
}
