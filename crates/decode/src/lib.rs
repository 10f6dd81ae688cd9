//! The decoding algorithms as data: lanes, lane tree, lane schedules, commit rules, boundaries.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod candidate;
mod token_class;

pub use candidate::{Candidate, Proposal, TokenId};
pub use token_class::{TokenClass, TokenClasses};
