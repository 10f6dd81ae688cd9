//! The decoding algorithms as data: lanes, lane tree, lane schedules, commit rules, boundaries.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod boundary;
mod candidate;
mod canvas;
mod commit;
mod config;
mod decoder;
mod effect;
mod lane;
mod schedule;
mod token_class;

pub use candidate::{Candidate, Proposal, TokenId};
pub use canvas::Canvas;
pub use commit::{CommitRule, Threshold, TopK};
pub use config::{
    AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, NumericPeriod, ScheduleConfig,
};
pub use decoder::{Decoder, Input, LaneView};
pub use effect::{Birth, CommitKind, DoneReason, Effect, ForwardKind, LaneId, Role};
pub use lane::{Lane, LaneTree, Status};
pub use schedule::{AsyncLane, BlockWise, LaneSchedule, State};
pub use token_class::{TokenClass, TokenClasses};
