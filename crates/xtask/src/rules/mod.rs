//! All rules; a new one is a file here and a line in [`ALL`].

pub mod budgets;
pub mod dependencies;
pub mod layout;
pub mod source;
pub mod tables;

use anyhow::Result;

use crate::{Problem, Repository};

/// A rule: its family's name and its check.
#[derive(Clone, Copy)]
pub struct Rule {
    /// What it is about.
    pub name: &'static str,
    /// Finds every violation.
    pub check: fn(&Repository) -> Result<Vec<Problem>>,
}

/// Every rule there is.
pub const ALL: &[Rule] = &[
    Rule {
        name: "dependencies",
        check: dependencies::check,
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
        name: "layout",
        check: layout::check,
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
