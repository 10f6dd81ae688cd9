//! Contents that every source file must have, and contents that none may have, beyond the lints of
//! `Cargo.toml`.

use crate::repository::{File, Problem};
use crate::syntax::Syntax;

/// Where `unsafe` and `feature = "cuda"` belong: the kernels, and the laboratory that tests them.
const DEVICE_CODE: [&str; 2] = ["crates/kernels/", "tests/lab/cuda/"];

/// The crate with one `unsafe` block, the memory map of the weights.
const MEMORY_MAP: &str = "model";

/// Folders of a machine, in two halves so that this file does not contain them.
const MACHINE_FOLDERS: [(&str, &str); 5] =
    [("/wo", "rk/"), ("/fa", "rm/"), ("/ho", "me/"), ("/Use", "rs/"), ("../sha", "red/")];

/// Files of tools or of other people.
const FOREIGN: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// Applies every rule to every file.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut maps = 0;
    for file in files.iter().filter(|file| !FOREIGN.iter().any(|name| file.path.ends_with(name))) {
        problems.extend(machine_folders(file));
        match &file.rust {
            None => {}
            Some(Err((line, why))) => problems.push(Problem::at("syntax", &file.path, *line, why)),
            Some(Ok(syntax)) => {
                problems.extend(concept(file));
                problems.extend(documented(file, syntax));
                let ignored = syntax.lines_of(&["#", "[", "ignore"]).into_iter();
                let message = "`#[ignore]` on a test";
                problems
                    .extend(ignored.map(|line| Problem::at("ignored", &file.path, line, message)));
                problems.extend(device_code(file, syntax, &mut maps));
            }
        }
    }
    problems
}

/// The lines that name a folder of a machine.
fn machine_folders(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for (first, second) in MACHINE_FOLDERS {
            let folder = format!("{first}{second}");
            let mut found = line.match_indices(&folder);
            if found.any(|(start, _)| begins_a_path(line, start)) {
                let message = format!("names a folder of a machine: `{folder}`");
                problems.push(Problem::at("words", &file.path, number, message));
            }
        }
    }
    problems
}

/// True if a path begins at byte `start`; false inside a longer path.
fn begins_a_path(line: &str, start: usize) -> bool {
    let before = line[..start].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c))
}

/// The first line names the file's concept.
fn concept(file: &File) -> Option<Problem> {
    let first = file.text.lines().next().unwrap_or_default();
    let named = first.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty());
    let message = "the first line must be a `//!` comment that names the file's concept";
    (!named).then(|| Problem::at("concept", &file.path, 1, message))
}

/// Every crate denies public items without documentation.
fn documented(file: &File, syntax: &Syntax) -> Option<Problem> {
    let is_root = file.path == format!("crates/{}/src/lib.rs", file.crate_folder()?);
    let denies = syntax.lines_of(&["#", "!", "[", "deny", "(", "missing_docs", ")"]);
    let message = "no `#![deny(missing_docs)]`";
    (is_root && denies.is_empty()).then(|| Problem::of_file("docs", &file.path, message))
}

/// `unsafe` and `feature = "cuda"` stand in device code only; one `unsafe` maps the weights.
fn device_code(file: &File, syntax: &Syntax, maps: &mut usize) -> Vec<Problem> {
    if DEVICE_CODE.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let problem = |rule, line, message| Problem::at(rule, &file.path, line, message);
    let features = syntax.lines_of(&["feature", "=", "\"cuda\""]).into_iter();
    let message = "`feature = \"cuda\"` outside the crate `kernels`";
    let mut problems: Vec<_> = features.map(|line| problem("accelerator", line, message)).collect();
    for line in syntax.lines_of(&["unsafe"]) {
        if file.crate_folder() == Some(MEMORY_MAP) {
            *maps += 1;
            if *maps > 1 {
                let message = "a second `unsafe` beside the memory map of the weights";
                problems.push(problem("unsafe", line, message));
            }
        } else {
            problems.push(problem("unsafe", line, "`unsafe` outside the crate `kernels`"));
        }
    }
    problems
}
