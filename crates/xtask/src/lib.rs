//! The repository's own rules, as data and as tests.
//!
//! Every rule reads and never writes. A rule returns one [`Problem`] per violation, so that a
//! run names all of them together; what must stay for now is listed with its reason in
//! `exceptions.rs`, and an entry there that nothing needs is a problem too.

pub mod compare;
mod exceptions;
mod repository;
pub mod result;
pub mod rules;
pub mod source;

use std::fmt;
use std::path::Path;

use anyhow::Result;

pub use exceptions::Exception;
pub use repository::{File, Repository};

/// One violation of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the rule.
    pub rule: &'static str,
    /// Path relative to the repository's root.
    pub path: String,
    /// Line, from 1; 0 stands for the whole file.
    pub line: usize,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {} [{}]", self.what, self.rule)
    }
}

/// Applies all rules to the repository at `root`.
///
/// # Errors
/// If the repository cannot be read.
pub fn verify(root: &Path) -> Result<Vec<Problem>> {
    let repository = Repository::load(root)?;
    let mut problems = Vec::new();
    for rule in rules::ALL {
        problems.extend((rule.check)(&repository)?);
    }
    Ok(exceptions::apply(exceptions::EXCEPTIONS, problems))
}
