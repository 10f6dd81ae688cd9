//! Grades an output: whether its end is right, and whether all of it is right.

use serde::Serialize;

use crate::problems::{Problem, wording};

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

/// Grades the decoded text of an output without its stop token. Any text is accepted; an interpreter
/// with limits runs code.
pub fn grade(problem: &Problem, output: &str) -> Grade {
    let end = problem.facts.ends_right(output);
    Grade {
        end,
        strict: end && wording::accepts(&problem.facts.wording(), output),
    }
}
