//! Grading an output: does it end right, and is all of it right?

use serde::Serialize;

use crate::problems::{Facts, Problem, wording};

/// Two judgements of one output. `strict` implies `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Grade {
    /// The end is right: the number after `####`, the behaviour of the function, the last list.
    pub end: bool,
    /// The whole text is a valid answer: every sentence one of the allowed wordings, in order,
    /// every equation true and the problem's own, nothing missing and nothing besides.
    pub strict: bool,
}

/// Grades the text of an output, decoded, without its stop token. Any text is accepted; code is
/// run by an interpreter with limits, never by the machine.
pub fn grade(problem: &Problem, output: &str) -> Grade {
    let end = match &problem.facts {
        Facts::Sums(sum) => sum.ends_right(output),
        Facts::Snippets(snippet) => snippet.ends_right(output),
        Facts::Lists(list) => list.ends_right(output),
    };
    Grade {
        end,
        strict: end && wording::accepts(&problem.facts.wording(), output),
    }
}
