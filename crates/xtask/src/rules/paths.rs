//! Every path that a document names exists.
//!
//! A path is the target of a link, or a word in backticks with a folder or a known ending. It is
//! looked up from the document's folder, the folders above it and, in the map, `crates/`; it may
//! also be the end of a longer path below the document's folder. `{a,b}` stands for both.

use std::collections::BTreeSet;
use std::path::Path;

use crate::map::MAP;
use crate::problem::Problem;
use crate::repository::Repository;

/// Endings of file names in the repository.
const ENDINGS: [&str; 14] = [
    "rs", "py", "md", "toml", "json", "html", "css", "js", "mjs", "cu", "cuh", "yaml", "yml",
    "service",
];

/// Files of checkpoints and other projects, and keys of a config map.
const FOREIGN: [&str; 5] = [
    "config.json",
    "tokenizer.json",
    "llada/generate.py",
    "full-attention.yaml",
    "causal.yaml",
];

/// One problem per path that does not exist.
pub fn check(repository: &Repository) -> Vec<Problem> {
    let paths = repository.paths.iter().map(String::as_str);
    let known = known(paths);
    let documents = repository.files.iter();
    documents
        .filter(|file| file.path.ends_with(".md") && file.path != "CHANGELOG.md")
        .flat_map(|file| check_document(&file.path, &file.text, &known))
        .collect()
}

/// All files and the folders that hold them.
pub fn known<'a>(files: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in files {
        let ends = file.match_indices('/').map(|(at, _)| at);
        known.extend(ends.chain([file.len()]).map(|end| file[..end].to_owned()));
    }
    known
}

/// The paths of one document that are not among the known ones, as problems.
pub fn check_document(document: &str, text: &str, known: &BTreeSet<String>) -> Vec<Problem> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut bases: Vec<&str> = folder
        .match_indices('/')
        .map(|(at, _)| &folder[..at])
        .collect();
    bases.extend([folder, ""]);
    let mut problems = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let problem = |path: &str| {
            let what = format!("`{path}` does not exist");
            Problem::at("paths", document, number, what)
        };
        let dead = links(line).filter(|target| !known.contains(&join(folder, target)));
        problems.extend(dead.map(problem));
        let words = line.split('`').skip(1).step_by(2).flat_map(candidates);
        for path in words.filter(|path| is_path(path, &bases, known)) {
            let exists = |base: &&str| known.contains(&join(base, &path));
            let of_map = document == MAP && exists(&"crates");
            if !of_map && !bases.iter().any(exists) && !is_end(folder, &path, known) {
                problems.push(problem(&path));
            }
        }
    }
    problems
}

/// Whether a longer path below `folder` ends with `path`.
fn is_end(folder: &str, path: &str, known: &BTreeSet<String>) -> bool {
    let end = format!("/{}", path.trim_end_matches('/'));
    let below = known.iter().filter(|known| known.starts_with(folder));
    below.into_iter().any(|known| known.ends_with(&end))
}

/// Whether a word is meant as a path: by its ending, or by its first folder.
fn is_path(word: &str, bases: &[&str], known: &BTreeSet<String>) -> bool {
    let (first, rest) = word.split_once('/').unwrap_or((word, ""));
    let ending = Path::new(word)
        .extension()
        .and_then(|ending| ending.to_str());
    let named = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    let begins = !rest.is_empty() && bases.iter().any(|base| known.contains(&join(base, first)));
    !FOREIGN.contains(&word) && first != "target" && (named || begins)
}

/// The words of a path's form that a word in backticks stands for.
fn candidates(word: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    let has_form =
        word.chars().all(plain) && !word.starts_with(['/', '-']) && word.contains(['/', '.']);
    // `FOLDER/NAME.json` stands for any such file; `.json` is an ending.
    let placeholder = word.split(['/', '.']).any(|part| {
        part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()) && part != "README"
    });
    let is_ending = word.starts_with('.') && !word.contains('/');
    if !has_form || (placeholder && !word.ends_with(".md")) || is_ending {
        return Vec::new();
    }
    match (word.find('{'), word.find('}')) {
        (Some(open), Some(close)) if open < close => word[open + 1..close]
            .split(',')
            .map(|one| [&word[..open], one.trim(), &word[close + 1..]].concat())
            .collect(),
        _ => vec![word.to_owned()],
    }
}

/// Targets of links into the repository, without anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0.split('#').next()?;
        let outside = target.is_empty() || target.contains(':') || target.contains(' ');
        (!outside).then_some(target)
    })
}

/// `path` seen from `folder`, `..` resolved.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
