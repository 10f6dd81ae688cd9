//! What may break a rule for now: a list that only ever gets shorter.

use crate::Problem;

/// A file that may break a rule.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Name of the rule.
    pub rule: &'static str,
    /// Path relative to the repository's root.
    pub path: &'static str,
    /// Why this is right here.
    pub reason: &'static str,
}

/// All exceptions.
pub(crate) const EXCEPTIONS: &[Exception] = &[];

/// Removes what is excepted; an exception without a problem becomes one.
pub(crate) fn apply(exceptions: &[Exception], problems: Vec<Problem>) -> Vec<Problem> {
    let covers = |exception: &Exception, problem: &Problem| {
        exception.rule == problem.rule && exception.path == problem.path
    };
    let idle = exceptions
        .iter()
        .filter(|exception| !problems.iter().any(|problem| covers(exception, problem)))
        .map(|exception| Problem {
            rule: "exceptions",
            path: exception.path.to_owned(),
            line: 0,
            what: format!(
                "the exception from `{}` is not needed any more",
                exception.rule
            ),
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
    use crate::Problem;

    #[test]
    fn an_exception_covers_its_problem_and_must_be_needed() {
        let problem = |rule| Problem {
            rule,
            path: "a.rs".into(),
            line: 3,
            what: "x".into(),
        };
        let exception = Exception {
            rule: "unwrap",
            path: "a.rs",
            reason: "a test",
        };
        let left = apply(&[exception], vec![problem("unwrap"), problem("unsafe")]);
        assert_eq!(left, [problem("unsafe")]);
        let left = apply(&[exception], vec![problem("unsafe")]);
        assert_eq!(left.len(), 2);
        assert_eq!(left[1].rule, "exceptions");
    }
}
