//! Decoding algorithms without I/O: lanes, lane schedules, commit rules, boundaries, grammars.
#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]
#![warn(clippy::as_conversions)]

extern crate alloc;

mod boundary;
mod candidate;
mod canvas;
mod commit;
mod config;
mod constraint;
mod coordinates;
mod decoder;
mod describe;
mod effect;
mod filter;
mod guard;
mod lane;
mod noise;
mod numbers;
mod schedule;
mod settings;
mod token_class;

pub use boundary::{Boundary, NumericPeriod};
pub use candidate::{Candidate, Proposal, TokenId};
pub use canvas::{Canvas, Pin};
pub use commit::{
    Branches, COMMITS, Checks, CommitConfig, CommitHost, CommitInfo, CommitInput, CommitRule,
    Denoising, Guesses, Reads, Requirements, Scene, Scope, Verdict, Verification,
};
pub use config::DecoderConfig;
pub use constraint::{Constraint, ConstraintError, Failure};
pub use coordinates::{
    Coordinate, Coordinates, Offset, Place, Position, Slot, Span, as_count, as_index,
};
pub use decoder::{Decoder, Input, LaneView};
pub use describe::{
    AttentionKind, Capability, Configured, Describe, Fault, Feature, NameFilter, Rows,
};
pub use effect::{Birth, Commit, CommitKind, DoneReason, Effect, ForwardKind, LaneId, Role};
pub use filter::{Filter, FilterError, Weights};
pub use lane::{Lane, LaneTree, Status};
pub use noise::mix;
pub use numbers::to_single;
pub use schedule::{
    AsyncLaneConfig, LaneSchedule, SCHEDULES, ScheduleConfig, ScheduleInfo, Shape, State,
};
pub use settings::{
    Mismatch, SettingDefault, SettingInfo, SettingKind, Settings, UNBOUNDED, Value,
};
pub use token_class::{TokenClass, TokenClasses};
