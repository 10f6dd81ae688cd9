//! Every path that a document names exists.
//!
//! A path is a word in backticks with a `/` that ends like a source, a document or a folder (`/`), or the
//! bare name of a Rust file. It is a file or folder of the repository, or the end of a longer path.
//! `{a,b}` stands for both. The tests of the documents in `tests` check links.

use std::collections::BTreeSet;

use crate::repository::{File, Problem};

/// Endings of file names in the repository.
const ENDINGS: [&str; 12] =
    [".rs", ".py", ".md", ".toml", ".json", ".html", ".js", ".cu", ".cuh", ".yaml", ".yml", "/"];

/// Paths of other projects, of build outputs and of archives.
const FOREIGN: [&str; 4] = ["llada/generate.py", "target/", "completions/", "./"];

/// One problem per path that does not exist.
pub fn check(files: &[File]) -> Vec<Problem> {
    let known = known(files.iter().map(|file| file.path.as_str()));
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    let documents = documents.filter(|file| file.path != "CHANGELOG.md");
    documents.flat_map(|file| check_document(&file.path, &file.text, &known)).collect()
}

/// All files and the folders that hold them, and every end of their paths.
pub fn known<'a>(files: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    for file in files {
        let slashes: Vec<usize> = file.match_indices('/').map(|(place, _)| place).collect();
        for end in slashes.iter().copied().chain([file.len()]) {
            let starts = [0].into_iter().chain(slashes.iter().map(|place| place + 1));
            known.extend(starts.filter(|start| *start < end).map(|start| &file[start..end]));
        }
    }
    known
}

/// The paths of one document that are not among the known ones, as problems.
pub fn check_document(document: &str, text: &str, known: &BTreeSet<&str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for path in line.split('`').skip(1).step_by(2).flat_map(paths) {
            let plain = path.trim_start_matches("../").trim_end_matches('/');
            if !known.contains(plain) {
                let message = format!("`{path}` does not exist");
                problems.push(Problem::at("paths", document, number, message));
            }
        }
    }
    problems
}

/// The paths that a word in backticks stands for; none if it is no path.
fn paths(word: &str) -> Vec<String> {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    let has_ending = ENDINGS.iter().any(|ending| word.ends_with(ending));
    let has_form = word.contains('/') && has_ending || word.ends_with(".rs") && word.len() > 3;
    // `FOLDER/NAME.json` stands for any such file.
    let is_placeholder =
        |part: &str| part.len() > 1 && !part.contains(|c: char| !c.is_ascii_uppercase());
    let mut parts = word.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let named = !parts.any(|part| is_placeholder(part) && !["README", "SUMMARY"].contains(&part));
    let foreign = FOREIGN.iter().any(|foreign| word.starts_with(foreign));
    if !has_form || !named || foreign || word.starts_with(['/', '-']) || !word.chars().all(is_sign)
    {
        return Vec::new();
    }
    let Some((open, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let (inner, close) = rest.split_once('}').unwrap_or((rest, ""));
    inner.split(',').map(|one| [open, one, close].concat()).collect()
}
