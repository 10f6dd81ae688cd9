//! All rules applied, and the files that may break one.

use std::path::Path;

use anyhow::Result;

use crate::problem::Problem;
use crate::repository::Repository;
use crate::rules;

/// A file that may break a rule.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Name of the rule.
    pub rule: &'static str,
    /// Path relative to the repository's root.
    pub path: &'static str,
    /// Why the file may break the rule.
    pub reason: &'static str,
}

/// All exceptions.
const EXCEPTIONS: &[Exception] = &[];

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
    Ok(apply(EXCEPTIONS, problems))
}

/// Removes the problems that an exception covers; an exception without a problem is a problem.
fn apply(exceptions: &[Exception], problems: Vec<Problem>) -> Vec<Problem> {
    let covers = |exception: &Exception, problem: &Problem| {
        exception.rule == problem.rule && exception.path == problem.path
    };
    let idle = exceptions
        .iter()
        .filter(|exception| !problems.iter().any(|problem| covers(exception, problem)))
        .map(|exception| {
            let what = format!("no violation of `{}`: remove the exception", exception.rule);
            Problem::of_file("exceptions", exception.path, what)
        });
    let idle: Vec<_> = idle.collect();
    let mut left = problems;
    left.retain(|problem| {
        !exceptions
            .iter()
            .any(|exception| covers(exception, problem))
    });
    left.extend(idle);
    left
}

#[cfg(test)]
mod tests {
    use super::{Exception, apply};
    use crate::problem::Problem;

    #[test]
    fn an_exception_covers_its_problem_and_must_be_needed() {
        let problem = |rule| Problem {
            rule,
            path: "a.rs".into(),
            line: 3,
            what: "x".into(),
        };
        let exception = Exception {
            rule: "bundles",
            path: "a.rs",
            reason: "a test",
        };
        let left = apply(&[exception], vec![problem("bundles"), problem("unsafe")]);
        assert_eq!(left, [problem("unsafe")]);
        let left = apply(&[exception], vec![problem("unsafe")]);
        assert_eq!(left.len(), 2);
        assert_eq!(left[1].rule, "exceptions");
    }
}
