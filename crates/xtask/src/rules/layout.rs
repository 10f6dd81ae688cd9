//! The entries at the top of the repository, and the paths of a machine that no file may name.

use anyhow::{Context, Result};

use crate::problem::Problem;
use crate::repository::{File, Repository};

/// Every entry at the top except those that begin with a dot.
const TOP: [&str; 14] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates",
    "config",
    "deploy",
    "docs",
    "Dockerfile",
    "tests",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "rust-toolchain.toml",
    "clippy.toml",
    "rustfmt.toml",
];

/// Build outputs, which git ignores.
const OUTPUTS: [&str; 1] = ["target"];

/// Folders of a machine, in two halves so that this file does not contain them.
const MACHINE_PATHS: [(&str, &str); 5] = [
    ("/wo", "rk/"),
    ("/fa", "rm/"),
    ("/ho", "me/"),
    ("/Use", "rs/"),
    ("../sha", "red/"),
];

/// Files written by tools or by other people.
const NOT_OURS: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// Unknown entries at the top.
///
/// # Errors
/// If the root cannot be listed.
pub fn check(repository: &Repository) -> Result<Vec<Problem>> {
    let root = &repository.root;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).with_context(|| root.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(top(&names))
}

/// The unknown ones among the names of the entries at the top.
pub fn top(names: &[String]) -> Vec<Problem> {
    let belongs = |name: &str| {
        let ignored = OUTPUTS.contains(&name) || name.ends_with(".log");
        name.starts_with('.') || TOP.contains(&name) || ignored
    };
    let unknown = names.iter().filter(|name| !belongs(name));
    unknown
        .map(|name| Problem::of_file("layout", name, "unknown entry at the top of the repository"))
        .collect()
}

/// Text files that name a folder of a machine.
pub fn words(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files
        .iter()
        .filter(|file| !NOT_OURS.contains(&file.path.as_str()))
    {
        for (number, line) in (1..).zip(file.text.lines()) {
            for (first, second) in MACHINE_PATHS {
                let path = format!("{first}{second}");
                if line
                    .match_indices(&path)
                    .any(|(at, _)| starts_path(line, at))
                {
                    let what = format!("names a folder of a machine: `{path}`");
                    problems.push(Problem::at("words", &file.path, number, what));
                }
            }
        }
    }
    problems
}

/// Whether a path begins at byte `at`; false inside a longer path.
fn starts_path(line: &str, at: usize) -> bool {
    !line[..at]
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c))
}
