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
mod guard;
mod lane;
mod noise;
mod numbers;
mod schedule;
mod settings;
mod token_class;

pub use boundary::{Boundary, NumericPeriod};
pub use candidate::{Candidate, Proposal, TokenId};
pub use canvas::Canvas;
pub use commit::{
    AnswerSpan, COMMITS, Capped, CausalCheck, CommitConfig, CommitHost, CommitInfo, CommitInput,
    CommitRule, Credit, Denoising, DraftVerify, EarlyCommit, Edit, Entropy, EntropyBound, Factor,
    Filter, FilterError, Guesses, Hierarchy, JointBound, LearnedFilter, LocalLeap, Margin,
    NestedDrafts, Rank, Reads, Renoise, Requirements, Scene, Scheduled, SelfSpeculative, Threshold,
    TopK, Weights,
};
pub use config::DecoderConfig;
pub use constraint::{Constraint, ConstraintError, Failure};
pub use coordinates::{
    Coordinate, Coordinates, Offset, Place, Position, Slot, Span, as_count, as_index,
};
pub use decoder::{Decoder, Input, LaneView};
pub use describe::{AttentionKind, Capability, Company, Configured, Describe, Fault, Feature};
pub use effect::{Birth, CommitKind, DoneReason, Effect, ForwardKind, LaneId, Role};
pub use lane::{Lane, LaneTree, Status};
pub use noise::mix;
pub use numbers::to_single;
pub use schedule::{
    AdaptiveBlock, AsyncLane, AsyncLaneConfig, BlockWise, Canvases, Delimiters, LaneSchedule,
    MultiBlock, SCHEDULES, ScheduleConfig, ScheduleInfo, Shape, Speculative, State, Streaming,
    Window,
};
pub use settings::{
    Mismatch, SettingDefault, SettingInfo, SettingKind, Settings, UNBOUNDED, Value,
};
pub use token_class::{TokenClass, TokenClasses};
