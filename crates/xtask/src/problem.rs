//! One violation of one rule.

use std::fmt;

/// One violation of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the rule.
    pub rule: &'static str,
    /// Path relative to the repository's root.
    pub path: String,
    /// Line, from 1; 0 means the whole file.
    pub line: usize,
    /// What the rule expects and what the file holds.
    pub what: String,
}

impl Problem {
    /// A problem with a whole file.
    pub fn of_file(rule: &'static str, path: &str, what: impl Into<String>) -> Self {
        Self::at(rule, path, 0, what)
    }

    /// A problem at a line, from 1.
    pub fn at(rule: &'static str, path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            rule,
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
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
