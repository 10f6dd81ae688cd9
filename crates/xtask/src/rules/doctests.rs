//! Documentation tests are compiled for the crates that have examples and for no other: a pass over a
//! crate without examples costs as long as a check of it.

use crate::problem::Problem;
use crate::repository::File;

/// What the manifest of a crate without examples says.
const OFF: &str = "doctest = false";

/// Crates whose manifest and examples disagree.
pub fn check(files: &[File]) -> Vec<Problem> {
    let manifests = files.iter().filter(|file| {
        let path = file.path.strip_prefix("crates/");
        path.is_some_and(|path| path.matches('/').count() == 1 && path.ends_with("/Cargo.toml"))
    });
    let mut problems = Vec::new();
    for manifest in manifests {
        let mut sources = files.iter().filter(|file| {
            file.krate() == manifest.krate() && file.path.contains("/src/") && file.rust.is_some()
        });
        let example = sources.find_map(|file| Some((file, example(&file.text)?)));
        let off = manifest.text.lines().any(|line| line.trim() == OFF);
        match example {
            Some((file, line)) if off => problems.push(Problem::at(
                "doctests",
                &file.path,
                line,
                format!(
                    "an example that no test compiles: `{OFF}` in {}",
                    manifest.path
                ),
            )),
            None if !off => problems.push(Problem::of_file(
                "doctests",
                &manifest.path,
                format!("no example in the documentation: `{OFF}` is missing under `[lib]`"),
            )),
            _ => {}
        }
    }
    problems
}

/// The line of the first example, counted from 1: a fence in a documentation comment that is not
/// marked as another language.
fn example(text: &str) -> Option<usize> {
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(language) = comment.and_then(|comment| comment.trim().strip_prefix("```")) else {
            continue;
        };
        let rust = !inside && !matches!(language, "text" | "sh" | "toml" | "json");
        if rust {
            return Some(number);
        }
        inside = !inside;
    }
    None
}
