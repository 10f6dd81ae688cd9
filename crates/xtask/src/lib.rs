//! The walls between crates, the names of variables and the budgets of size, checked by the tests of this crate.
//!
//! A rule reads the repository and writes nothing. It returns one [`Problem`] per violation, so one
//! run reports all of them.
#![deny(missing_docs)]

pub mod imports;
pub mod map;
mod repository;
pub mod rules;
pub mod syntax;

pub use repository::{File, Problem, Repository};
