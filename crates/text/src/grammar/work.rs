//! The work of the lexer, bounded before it begins.
//!
//! A lexer state is a set of regex expressions, and a transition takes the derivative of each of
//! them by one byte. The compiler counts this work and stops at its limits, but only between two
//! transitions. A single one is unbounded: the derivative of `a?b?c?...` is an alternation of all
//! its ends, built at each of its positions, and the derivative of an intersection combines all
//! branches of its parts. This module bounds one transition from the expressions themselves.

use llguidance::derivre::raw::ExprSet;
use llguidance::derivre::{ExprRef, RegexBuilder};

/// Maximum work of one transition: branches that are combined, over all expressions. This much takes
/// about 0.1 s.
pub(super) const MAX_TRANSITION: u64 = 300_000;
/// Combined branches of an intersection that cost as much as one branch elsewhere: most of
/// them exclude each other.
pub(super) const COMBINED_PER_BRANCH: u64 = 64;

/// Tags of [`ExprSet::get_tag`], in the order of their declaration.
const EMPTY: u8 = 1;
const NO_MATCH: u8 = 2;
const LOOKAHEAD: u8 = 7;
const NOT: u8 = 8;
const REPEAT: u8 = 9;
const CONCAT: u8 = 10;
const AND: u8 = 12;

/// The work of one transition of `expressions`, and the most branches of one of them.
pub(super) fn transition(expressions: &ExprSet) -> (u64, u64) {
    let mut branches = vec![0_u64; expressions.len()];
    let (mut work, mut most) = (0_u64, 0);
    for index in 1..expressions.len() {
        let Ok(id) = u32::try_from(index) else {
            return (u64::MAX, u64::MAX);
        };
        let id = ExprRef::new(id);
        let arguments = expressions.get_args(id);
        let count = |argument: &ExprRef| branches.get(argument.as_usize()).copied().unwrap_or(0);
        let sum = || arguments.iter().map(count).fold(0, u64::saturating_add);
        let first = arguments.first().map_or(0, count);
        let (own, count) = match expressions.get_tag(id) as u8 {
            EMPTY | NO_MATCH => (1, 0),
            LOOKAHEAD | NOT | REPEAT => (1, first),
            CONCAT if arguments.first().is_some_and(|a| expressions.is_nullable(*a)) => {
                (sum(), sum())
            }
            CONCAT => (1, first),
            AND => {
                let all = arguments.iter().map(count).fold(1, product);
                (
                    sum().saturating_add(all / COMBINED_PER_BRANCH),
                    sum().saturating_add(all / COMBINED_PER_BRANCH),
                )
            }
            _ if arguments.is_empty() => (1, 1),
            _ => (sum().max(1), sum().max(1)),
        };
        branches[index] = count;
        work = work.saturating_add(own);
        most = most.max(count);
    }
    (work, most)
}

/// The branches of an intersection of parts with `a` and `b` branches.
pub(super) fn product(a: u64, b: u64) -> u64 {
    a.saturating_mul(b.max(1))
}

/// [`transition`] of a pattern of a schema, which matches anywhere in a text unless anchored. An
/// invalid pattern costs nothing: the compiler refuses it.
pub(super) fn pattern(source: &str) -> (u64, u64) {
    let mut builder = RegexBuilder::new();
    match builder.mk_regex_for_serach(source) {
        Ok(_) => transition(builder.exprset()),
        Err(_) => (0, 0),
    }
}

/// Checks the work of one transition.
pub(super) fn check(work: u64) -> Result<(), String> {
    if work <= MAX_TRANSITION {
        return Ok(());
    }
    Err(format!(
        "expected regexes of which one step costs at most {MAX_TRANSITION}, found {work}: many \
         optional parts in a row, or an intersection of many patterns, are too expensive"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_parts_in_a_row_cost_their_square() {
        let work = |count: usize| pattern(&format!("^{}$", "a?".repeat(count))).0;
        assert!((500_000..600_000).contains(&work(1_000)), "{}", work(1_000));
        assert!(pattern("^(a?b){1000}$").0 < 100);
        assert!(pattern("^[a-z0-9._%+-]+@[a-z0-9.-]+$").0 < 100);
        assert!(check(work(400)).is_ok());
        assert!(check(work(1_000)).is_err());
        assert_eq!(pattern("("), (0, 0));
    }
}
