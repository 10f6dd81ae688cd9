//! What a decoder is made of: schedule, commit rule and what happens at stop tokens.

use crate::commit::CommitConfig;
use crate::schedule::ScheduleConfig;

/// Everything that [`Decoder::new`](crate::Decoder::new) needs to know of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Which lanes exist and run.
    pub schedule: ScheduleConfig,
    /// Which candidates are committed.
    pub commit: CommitConfig,
    /// Whether a committed stop token cuts the canvas after it (AsyncLane §2.5).
    pub prune: bool,
    /// Whether the sequence ends once its emitted prefix reaches a stop token; off only for the
    /// published form of the block-wise samplers, which fill the whole canvas.
    pub early_stop: bool,
    /// Whether a step may commit stop tokens alone while a mask is left of them. Otherwise it commits
    /// the worthiest other mask too: at the far end of an open lane a rule would spend step after step on
    /// stop tokens that come nearer.
    pub lone_stops: bool,
}
