//! How long a file may be, tests not counted. Clippy limits functions.

use crate::problem::Problem;
use crate::repository::File;
use crate::syntax::Syntax;

/// Lines that a file should stay under.
pub const FILE_SOFT: usize = 400;
/// Lines that a file may have.
pub const FILE_HARD: usize = 600;
/// Lines that the description of one model architecture may have.
pub const ARCHITECTURE: usize = 150;

const ARCHITECTURES: &str = "crates/model/src/arch/";

/// Files that exceed their budget.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, syntax) in shipped(files) {
        let (budget, lines) = (budget(file), syntax.shipped_lines());
        if lines > budget {
            let what = format!("{lines} lines, at most {budget} are allowed");
            problems.push(Problem::of_file("budgets", &file.path, what));
        }
    }
    problems
}

/// Files that exceed the soft budget.
pub fn notes(files: &[File]) -> Vec<String> {
    let lines = shipped(files).map(|(file, syntax)| (file, syntax.shipped_lines()));
    let long = lines.filter(|(_, lines)| *lines > FILE_SOFT);
    long.map(|(file, lines)| {
        format!(
            "{}: {lines} lines, the soft limit is {FILE_SOFT}",
            file.path
        )
    })
    .collect()
}

fn shipped(files: &[File]) -> impl Iterator<Item = (&File, &Syntax)> {
    files
        .iter()
        .filter(|file| !file.is_test())
        .filter_map(|file| Some((file, file.syntax()?)))
}

fn budget(file: &File) -> usize {
    match file.path.strip_prefix(ARCHITECTURES) {
        Some(name) if name != "mod.rs" => ARCHITECTURE,
        _ => FILE_HARD,
    }
}
