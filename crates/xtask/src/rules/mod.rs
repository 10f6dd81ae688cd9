//! All rules. A new rule is a file here and a line in [`verify`].

pub mod budgets;
pub mod dependencies;
pub mod names;
pub mod paths;
pub mod source;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::imports::{circles, imports, siblings};
use crate::repository::{Problem, Repository};

/// Applies all rules to the repository at `root`.
///
/// # Errors
/// If the repository cannot be read or cargo does not list its packages.
pub fn verify(root: &Path) -> Result<Vec<Problem>> {
    let repository = Repository::load(root)?;
    let files = &repository.files;
    let imports = imports(files);
    // A module and its parts may import each other.
    let across = circles(&imports).into_iter().filter(|circle| !circle.is_within_a_folder());
    let circles: BTreeSet<_> = across.chain(circles(&siblings(&imports))).collect();
    let mut problems = dependencies::check(&repository)?;
    let circles = circles.iter();
    problems
        .extend(circles.map(|it| Problem::of_file("circles", &it.files[0], it.files.join(", "))));
    problems.extend(budgets::check(files));
    problems.extend(source::check(files));
    problems.extend(names::check(files));
    problems.extend(paths::check(files));
    Ok(problems)
}
