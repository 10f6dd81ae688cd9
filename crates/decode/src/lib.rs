//! Decoding algorithms without I/O: lanes, lane schedules, commit rules, boundaries, grammars.
#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod boundary;
mod candidate;
mod canvas;
mod commit;
mod config;
mod constraint;
mod coordinates;
mod decoder;
mod effect;
mod guard;
mod lane;
mod schedule;
mod token_class;

pub use candidate::{Candidate, Proposal, TokenId};
pub use canvas::Canvas;
pub use commit::{
    AnswerSpan, Capped, CommitRule, Credit, DraftVerify, EarlyCommit, Edit, Entropy, EntropyBound,
    Factor, Filter, FilterError, Guesses, Hierarchy, LearnedFilter, LocalLeap, Margin, Rank, Reads,
    Scene, Scheduled, Threshold, TopK, Weights,
};
pub use config::{
    AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, NumericPeriod, ScheduleConfig,
};
pub use constraint::{Constraint, ConstraintError};
pub use coordinates::{
    Coordinate, Coordinates, Offset, Place, Position, Slot, Span, as_count, as_index,
};
pub use decoder::{Decoder, Input, LaneView};
pub use effect::{Birth, CommitKind, DoneReason, Effect, ForwardKind, LaneId, Role};
pub use lane::{Lane, LaneTree, Status};
pub use schedule::{AdaptiveBlock, AsyncLane, BlockWise, LaneSchedule, MultiBlock, State, Window};
pub use token_class::{TokenClass, TokenClasses};
