//! The rules of this repository, checked by tests, and the measure of its structure.
//!
//! A rule reads the repository and writes nothing. It returns one [`Problem`] per violation, so
//! one run reports all of them. `exceptions.rs` lists the exceptions with their reasons; an
//! exception without a violation is itself a problem.
#![deny(missing_docs)]

pub mod compare;
mod exceptions;
pub mod imports;
pub mod map;
pub mod measure;
mod problem;
mod repository;
pub mod result;
pub mod rules;
pub mod syntax;

pub use exceptions::{Exception, verify};
pub use problem::Problem;
pub use repository::{File, Repository};
