//! What every source file must hold, and what none may hold, beyond the lints in `Cargo.toml`.

use crate::problem::Problem;
use crate::repository::File;
use crate::syntax::Syntax;

/// Arguments that a function may have, the receiver included. `clippy.toml` has the same limit.
pub const ARGUMENTS: usize = 5;

/// The crate of device code: `unsafe` and `feature = "cuda"` belong there.
const DEVICE: &str = "kernels";

/// The crate with one `unsafe` block, the memory map of the weights.
const MAPS_WEIGHTS: &str = "model";

/// Applies every source rule to every Rust file.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut maps = 0;
    for file in files {
        match &file.rust {
            None => {}
            Some(Err((line, why))) => {
                problems.push(Problem::at("syntax", &file.path, *line, why));
            }
            Some(Ok(syntax)) => {
                problems.extend(concept(file));
                problems.extend(documented(file, syntax));
                problems.extend(ignored(file, syntax));
                problems.extend(bundles(file, syntax));
                problems.extend(device_code(file, syntax, &mut maps));
            }
        }
    }
    problems
}

/// The first line names the file's concept.
fn concept(file: &File) -> Option<Problem> {
    let first = file.text.lines().next().unwrap_or_default();
    let named = first
        .strip_prefix("//!")
        .is_some_and(|text| !text.trim().is_empty());
    let what = "the first line must be a `//!` comment that names the file's concept";
    (!named).then(|| Problem::at("concept", &file.path, 1, what))
}

/// Every crate denies public items without documentation.
fn documented(file: &File, syntax: &Syntax) -> Option<Problem> {
    let krate = file.krate()?;
    let is_root = file.path == format!("crates/{krate}/src/lib.rs");
    let denies = syntax.lines_of(&["#", "!", "[", "deny", "(", "missing_docs", ")"]);
    let what = "no `#![deny(missing_docs)]`";
    (is_root && denies.is_empty()).then(|| Problem::of_file("docs", &file.path, what))
}

/// No test is switched off.
fn ignored(file: &File, syntax: &Syntax) -> Vec<Problem> {
    let lines = syntax.lines_of(&["#", "[", "ignore"]);
    let problem = |line| Problem::at("ignored", &file.path, line, "`#[ignore]` on a test");
    lines.into_iter().map(problem).collect()
}

/// A tuple among the parameters counts as its members; clippy counts it as one argument.
fn bundles(file: &File, syntax: &Syntax) -> Vec<Problem> {
    let mut problems = Vec::new();
    let functions = syntax.functions().into_iter();
    for function in functions.filter(|function| !file.is_test() && !function.of_trait) {
        if function.arguments > ARGUMENTS && function.arguments > function.parameters {
            let (name, count) = (&function.name, function.arguments);
            let what = format!(
                "`{name}` has {count} arguments with the members of its tuples, at most \
                 {ARGUMENTS} are allowed"
            );
            problems.push(Problem::at("bundles", &file.path, function.line, what));
        }
    }
    problems
}

/// `unsafe` and `feature = "cuda"` stand in device code only; one `unsafe` maps the weights.
fn device_code(file: &File, syntax: &Syntax, maps: &mut usize) -> Vec<Problem> {
    let mut problems = Vec::new();
    if file.krate() == Some(DEVICE) {
        return problems;
    }
    for line in syntax.lines_of(&["feature", "=", "\"cuda\""]) {
        let what = "`feature = \"cuda\"` outside the crate `kernels`";
        problems.push(Problem::at("accelerator", &file.path, line, what));
    }
    for line in syntax.lines_of(&["unsafe"]) {
        let what = match file.krate() == Some(MAPS_WEIGHTS) {
            true if *maps == 0 => {
                *maps += 1;
                continue;
            }
            true => "a second `unsafe` beside the memory map of the weights",
            false => "`unsafe` outside the crate `kernels`",
        };
        problems.push(Problem::at("unsafe", &file.path, line, what));
    }
    problems
}
