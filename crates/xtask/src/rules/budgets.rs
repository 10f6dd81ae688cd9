//! The lengths of files and functions, tests not counted.

use crate::repository::{File, Problem};

/// Lines that a file may have.
pub const FILE: usize = 500;
/// Lines that a function may have, comments included. Clippy counts lines of code of one target only.
pub const FUNCTION: usize = 70;
/// Lines that the description of one model architecture may have.
pub const ARCHITECTURE: usize = 150;

const ARCHITECTURES: &str = "crates/model/src/arch/";

/// Files and functions over their budget.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let Some(syntax) = file.syntax() else {
            continue;
        };
        let (lines, budget) = (syntax.shipped_lines(), budget(&file.path));
        if lines > budget {
            let message = format!("{lines} lines, at most {budget} are allowed");
            problems.push(Problem::of_file("budgets", &file.path, message));
        }
        for function in syntax.functions().iter().filter(|it| it.lines > FUNCTION) {
            let (name, lines) = (&function.name, function.lines);
            let message = format!("`{name}` has {lines} lines, at most {FUNCTION} are allowed");
            problems.push(Problem::at("budgets", &file.path, function.line, message));
        }
    }
    problems
}

fn budget(path: &str) -> usize {
    match path.strip_prefix(ARCHITECTURES) {
        Some(name) if name != "mod.rs" => ARCHITECTURE,
        _ => FILE,
    }
}
