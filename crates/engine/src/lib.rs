//! Continuous batching: sequences, scheduler, KV pages, plan and apply, and the one thread
//! that drives them. `examples/schedule.rs` measures what plan and apply cost by themselves.
#![deny(missing_docs)]
#![warn(clippy::as_conversions)]

pub mod cache;
mod client_queue;
mod config;
mod counts;
pub mod decoding;
mod draft_job;
mod drafts;
mod driver;
mod engine;
mod event;
mod given;
mod guarded;
mod handle;
mod heartbeat;
mod layout;
mod limits;
mod nearest;
mod pages;
mod permits;
mod pool;
mod report;
mod request;
mod scheduler;
mod sequence;
mod step;

pub use self::step::StepPlan;
pub use client_queue::ClientQueue;
pub use config::{Capabilities, EngineConfig};
pub use counts::{ByKind, ByRole, CommitCounts};
pub use draft_job::{DraftJob, Drafts};
pub use drafts::Drafter;
pub use driver::{spawn, spawn_with_drafter};
pub use engine::Engine;
pub use event::{
    CheckCounts, DraftStats, Draw, Event, FinishReason, Finished, SequenceStats, StepTrace,
    TokenChunk, TokenLogprob,
};
pub use handle::{EventStream, Handle, Load, SubmitError};
pub use heartbeat::{Monitor, Pulse};
pub use limits::Limits;
pub use nearest::did_you_mean;
pub use permits::{QueuePermit, QueuePermits};
pub use pool::PoolLoad;
pub use report::{
    Delays, DraftCounts, FinishedSequence, Gauges, LaneCounts, Observer, PhaseTimes, PromptCounts,
    StepReport, Work,
};
pub use request::{
    ClientId, Extras, Given, Labels, LogitChanges, Penalties, Refusal, Request, Sender,
};
pub use scheduler::{ByPriority, Rank, WaitOrder};
pub use sequence::{GrammarJob, SequenceId};
