//! Grades of an output.

use std::io;

use serde::Serialize;

use crate::{Problem, wording};

/// Two judgements of one output. `strict` implies `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Grade {
    /// The end is right: the number after `####`, the behaviour of the function, the last
    /// list, the call.
    pub end: bool,
    /// The whole text is a valid answer: every sentence one of the allowed wordings, in order,
    /// every equation true and from the problem, nothing missing and nothing added.
    pub strict: bool,
}

/// Grades the decoded text of an output without its stop token. Any text is accepted. A snippet in
/// words that are not the generator's runs in `python3` with limits.
///
/// # Errors
/// `python3` is missing.
pub fn grade(problem: &Problem, output: &str) -> io::Result<Grade> {
    let strict = is_strict(problem, output);
    let end = strict || problem.facts.ends_right(output)?;
    Ok(Grade { end, strict })
}

/// [`Grade::strict`] alone, which runs no code.
pub fn is_strict(problem: &Problem, output: &str) -> bool {
    wording::accepts(&problem.facts.wording(), output)
}
