//! How long a file and a function may be, tests left out.

use crate::{File, Problem};

/// Lines a file should stay under.
pub const FILE_SOFT: usize = 400;
/// Lines a file may have.
pub const FILE_HARD: usize = 600;
/// Lines the description of one model architecture may have.
pub const ARCHITECTURE: usize = 150;
/// Lines a function may have, from its signature to its closing brace.
pub const FUNCTION: usize = 70;
/// Arguments a function may have, a receiver included, where it is not a trait's.
pub const ARGUMENTS: usize = 5;

const ARCHITECTURES: &str = "crates/model/src/arch/";

/// Files and functions beyond their budget.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, source) in shipped(files) {
        let problem = |line, what| Problem {
            rule: "budgets",
            path: file.path.clone(),
            line,
            what,
        };
        let (budget, lines) = (budget(file), source.shipped_lines());
        if lines > budget {
            problems.push(problem(0, format!("{lines} lines, at most {budget}")));
        }
        for function in source.functions() {
            let name = &function.name;
            if function.lines > FUNCTION {
                let lines = function.lines;
                let what = format!("`{name}` has {lines} lines, at most {FUNCTION}");
                problems.push(problem(function.line, what));
            }
            if function.arguments > ARGUMENTS && !function.of_trait {
                let arguments = function.arguments;
                let what = format!("`{name}` has {arguments} arguments, at most {ARGUMENTS}");
                problems.push(problem(function.line, what));
            }
        }
    }
    problems
}

/// Files beyond the soft budget, worth a look.
pub fn notes(files: &[File]) -> Vec<String> {
    let lines = shipped(files).map(|(file, source)| (file, source.shipped_lines()));
    let long = lines.filter(|(_, lines)| *lines > FILE_SOFT);
    long.map(|(file, lines)| format!("{}: {lines} lines, better {FILE_SOFT}", file.path))
        .collect()
}

fn shipped(files: &[File]) -> impl Iterator<Item = (&File, &crate::source::Source)> {
    files
        .iter()
        .filter(|file| !file.is_test())
        .filter_map(|file| Some((file, file.rust.as_ref()?)))
}

fn budget(file: &File) -> usize {
    match file.path.strip_prefix(ARCHITECTURES) {
        Some(name) if name != "mod.rs" => ARCHITECTURE,
        _ => FILE_HARD,
    }
}
