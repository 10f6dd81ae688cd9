//! All rules. A new rule is a file here and a line in [`ALL`].

pub mod budgets;
pub mod dependencies;
pub mod doctests;
pub mod layout;
pub mod paths;
pub mod source;
pub mod supply;
pub mod tables;

use anyhow::Result;

use crate::problem::Problem;
use crate::repository::Repository;

/// A group of rules.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name of the group.
    pub name: &'static str,
    /// Finds every violation.
    pub check: fn(&Repository) -> Result<Vec<Problem>>,
}

/// Every group of rules.
pub const ALL: &[Rule] = &[
    Rule {
        name: "dependencies",
        check: dependencies::check,
    },
    Rule {
        name: "doctests",
        check: |repository| Ok(doctests::check(&repository.files)),
    },
    Rule {
        name: "budgets",
        check: |repository| Ok(budgets::check(&repository.files)),
    },
    Rule {
        name: "source",
        check: |repository| Ok(source::check(&repository.files)),
    },
    Rule {
        name: "supply",
        check: supply::check,
    },
    Rule {
        name: "layout",
        check: layout::check,
    },
    Rule {
        name: "paths",
        check: |repository| Ok(paths::check(repository)),
    },
    Rule {
        name: "tables",
        check: |repository| Ok(tables::check(&repository.files)),
    },
    Rule {
        name: "words",
        check: |repository| Ok(layout::words(&repository.files)),
    },
];
