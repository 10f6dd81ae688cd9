//! The parts of a decoder: schedule, commit rule and the treatment of stop tokens.

use crate::commit::CommitConfig;
use crate::schedule::ScheduleConfig;

/// The configuration of a [`Decoder`](crate::Decoder).
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The schedule, which decides the lanes that exist and run.
    pub schedule: ScheduleConfig,
    /// The commit rule, which decides the candidates that are committed.
    pub commit: CommitConfig,
    /// True if a committed stop token cuts the canvas after it (AsyncLane §2.5).
    pub prune: bool,
    /// True if the sequence ends once its emitted prefix reaches a stop token; off only for the
    /// published form of the block-wise samplers, which fill the whole canvas.
    pub early_stop: bool,
    /// True if a step may commit stop tokens alone while a mask is left of them. Otherwise it commits
    /// the worthiest other mask too: at the far end of an open lane a rule would spend step after step on
    /// stop tokens that come nearer.
    pub lone_stops: bool,
    /// The step that commits every scored mask with its candidate, if there is one.
    pub max_steps: Option<u32>,
    /// Most canvases of an expected text that a forward tries beside the real one; 0 = none is expected.
    pub expected: u32,
}
