//! What lies at the top of the repository, and which words lie nowhere in it.

use anyhow::{Context, Result};

use crate::{File, Problem, Repository};

/// Everything at the top besides files and folders that begin with a dot.
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

/// Made by tools, and ignored by git.
const OUTPUTS: [&str; 1] = ["target"];

/// Paths of somebody's machine, in two halves so that this file does not hold them.
const MACHINE_PATHS: [(&str, &str); 5] = [
    ("/wo", "rk/"),
    ("/fa", "rm/"),
    ("/ho", "me/"),
    ("/Use", "rs/"),
    ("../sha", "red/"),
];

/// Written by tools, or by others.
const NOT_OURS: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// Top-level entries that do not belong.
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

/// Names that do not belong at the top.
pub fn top(names: &[String]) -> Vec<Problem> {
    let belongs = |name: &str| {
        let ignored = OUTPUTS.contains(&name) || name.ends_with(".log");
        name.starts_with('.') || TOP.contains(&name) || ignored
    };
    let strange = names.iter().filter(|name| !belongs(name));
    strange
        .map(|name| Problem {
            rule: "layout",
            path: name.clone(),
            line: 0,
            what: "does not belong at the top of the repository".to_owned(),
        })
        .collect()
}

/// Paths of a machine in any text file.
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
                    problems.push(Problem {
                        rule: "words",
                        path: file.path.clone(),
                        line: number,
                        what: format!("names a folder of a machine, `{path}`"),
                    });
                }
            }
        }
    }
    problems
}

/// Whether a path begins here, rather than being the rest of a longer one.
fn starts_path(line: &str, at: usize) -> bool {
    !line[..at]
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c))
}
