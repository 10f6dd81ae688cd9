//! What no source file may hold, and what every one must.

use crate::source::{Source, line_of, words};
use crate::{File, Problem};

/// Nowhere, tests included; split so that this file does not hold them.
const UNFINISHED: [&str; 5] = ["todo!", "unimplemented!", "dbg!", "#[ignore", "#[allow("];

/// Crates whose public items are all documented.
const DOCUMENTED: [&str; 3] = ["decode", "step", "engine"];

/// The crate of device code: `unsafe` and `cfg(feature = "cuda")` live there.
const DEVICE: &str = "kernels";

/// The crate with one marked `unsafe`, the memory map of weights.
const MAPS_WEIGHTS: &str = "model";

/// Applies every source rule to every Rust file.
pub fn check(files: &[File]) -> Vec<Problem> {
    let rust = || {
        files
            .iter()
            .filter_map(|file| Some((file, file.rust.as_ref()?)))
    };
    let mut problems = Vec::new();
    for (file, source) in rust() {
        problems.extend(concept(file));
        problems.extend(unfinished(file, source));
        problems.extend(expectations(file, source));
        problems.extend(unwraps(file, source));
        problems.extend(accelerator(file, source));
    }
    problems.extend(unsafety(rust()));
    problems.extend(documented(files));
    problems
}

/// The first line says the file's one concept.
fn concept(file: &File) -> Option<Problem> {
    let first = file.text.lines().next().unwrap_or_default();
    let said = first
        .strip_prefix("//!")
        .is_some_and(|said| !said.trim().is_empty());
    (!said).then(|| {
        problem(
            "concept",
            file,
            1,
            "the first line is no `//!` with the concept",
        )
    })
}

fn unfinished(file: &File, source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for what in UNFINISHED {
        for (at, _) in source.code.match_indices(what) {
            let before = source.code[..at].chars().next_back();
            if what.starts_with('#') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                let line = line_of(&source.code, at);
                problems.push(problem(
                    "unfinished",
                    file,
                    line,
                    &format!("holds `{what}`"),
                ));
            }
        }
    }
    problems
}

/// A lint is switched off by an expectation with a reason.
fn expectations(file: &File, source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, _) in source.code.match_indices("[expect(") {
        let end = source.code[at..]
            .find(']')
            .map_or(source.code.len(), |end| at + end);
        if words(&source.code[at..end], "reason").next().is_none() {
            let line = line_of(&source.code, at);
            problems.push(problem(
                "reasons",
                file,
                line,
                "an `expect` without a reason",
            ));
        }
    }
    problems
}

fn unwraps(file: &File, source: &Source) -> Vec<Problem> {
    if file.is_test() {
        return Vec::new();
    }
    let found = source.shipped.match_indices(".unwrap()");
    found
        .map(|(at, _)| {
            let what = "`.unwrap()`: return an error, or say with `expect` why it holds";
            problem("unwrap", file, line_of(&source.shipped, at), what)
        })
        .collect()
}

/// `cfg(feature = "cuda")` in device code alone.
fn accelerator(file: &File, source: &Source) -> Vec<Problem> {
    if file.krate() == Some(DEVICE) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (at, _) in source.code.match_indices("feature") {
        let line = line_of(&source.code, at);
        let text = &file.text[at..];
        let value = text
            .trim_start_matches("feature")
            .trim_start_matches([' ', '=']);
        if value.starts_with("\"cuda\"") {
            problems.push(problem(
                "accelerator",
                file,
                line,
                "`cuda` is a matter of kernels",
            ));
        }
    }
    problems
}

/// `unsafe` in device code, and once, with its reason, for the memory map of weights.
fn unsafety<'a>(rust: impl Iterator<Item = (&'a File, &'a Source)>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut maps = 0;
    for (file, source) in rust.filter(|(file, _)| file.krate() != Some(DEVICE)) {
        for at in words(&source.code, "unsafe") {
            let line = line_of(&source.code, at);
            if file.krate() != Some(MAPS_WEIGHTS) {
                problems.push(problem(
                    "unsafe",
                    file,
                    line,
                    "`unsafe` is a matter of kernels",
                ));
                continue;
            }
            maps += 1;
            let before = file.text.lines().take(line).collect::<Vec<_>>();
            let marked = before
                .iter()
                .rev()
                .take(5)
                .any(|line| line.contains("// SAFETY:"));
            if !marked {
                problems.push(problem(
                    "unsafe",
                    file,
                    line,
                    "no `// SAFETY:` says why it holds",
                ));
            }
            if maps > 1 {
                let what = "more than the one memory map of weights";
                problems.push(problem("unsafe", file, line, what));
            }
        }
    }
    problems
}

fn documented(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for krate in DOCUMENTED {
        let path = format!("crates/{krate}/src/lib.rs");
        for file in files.iter().filter(|file| file.path == path) {
            if !file.text.contains("#![deny(missing_docs)]") {
                problems.push(problem("docs", file, 0, "missing docs are not denied"));
            }
        }
    }
    problems
}

fn problem(rule: &'static str, file: &File, line: usize, what: &str) -> Problem {
    Problem {
        rule,
        path: file.path.clone(),
        line,
        what: what.to_owned(),
    }
}
