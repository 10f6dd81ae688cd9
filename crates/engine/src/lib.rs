//! Continuous batching: sequences, scheduler, KV pages, plan and apply, and the one thread
//! that drives them.
#![deny(missing_docs)]

pub mod decoding;
mod event;
mod handle;
mod limits;
mod report;
mod request;

pub use event::{Event, FinishReason, Finished, SequenceStats, StepTrace, TokenChunk};
pub use handle::{EventStream, Handle, Load, SubmitError};
pub use limits::Limits;
pub use report::{ByKind, ByRole, FinishedSequence, Gauges, Observer, PhaseTimes, StepReport};
pub use request::{Refusal, Request};
