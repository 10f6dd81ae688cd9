//! Circles: files that import each other, directly or over other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Imports, files_of};

/// Files that all reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// Sorted paths, at least two.
    pub files: Vec<String>,
    /// The imports among them: from, line, to.
    pub imports: Vec<(String, usize, String)>,
}

impl Circle {
    /// Whether one folder below a crate's `src` holds all files; `NAME.rs` is a part of `NAME/`.
    pub fn is_within_a_folder(&self) -> bool {
        let mut modules = self.files.iter().map(|file| module(file));
        let Some(mut common) = modules.next() else {
            return true;
        };
        for module in modules {
            let same = common.iter().zip(&module).take_while(|(a, b)| a == b);
            common.truncate(same.count());
        }
        !common.is_empty()
    }
}

/// The path of a file's module below its crate's `src`, empty for the root.
fn module(file: &str) -> Vec<&str> {
    let below = file.split_once("/src/").map_or(file, |(_, below)| below);
    let name = below.strip_suffix(".rs").unwrap_or(below);
    let name = name.strip_suffix("/mod").unwrap_or(name);
    match name {
        "lib" | "main" => Vec::new(),
        name => name.split('/').collect(),
    }
}

/// All circles, the longest first.
pub fn circles(imports: &Imports) -> Vec<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = files_of(imports)
        .into_iter()
        .map(|file| (file, reachable(imports, file)))
        .collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, from_here) in &reached {
        let back = |other: &&&String| reached[**other].contains(*file);
        let files: BTreeSet<&String> = from_here.iter().filter(back).copied().collect();
        if files.contains(*file) && seen.insert(files.clone()) {
            circles.push(circle(imports, &files));
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.files.len()));
    circles
}

/// Every file that `start` imports, directly or not.
fn reachable<'a>(imports: &'a Imports, start: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        let next = imports.get(file).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.filter(|next| found.insert(*next)));
    }
    found
}

fn circle(imports: &Imports, files: &BTreeSet<&String>) -> Circle {
    let edges = files.iter().flat_map(|from| {
        let to = imports.get(*from).into_iter().flatten();
        to.filter(|(to, _)| files.contains(to))
            .map(|(to, line)| ((*from).clone(), *line, to.clone()))
    });
    Circle {
        files: files.iter().map(|file| (*file).clone()).collect(),
        imports: edges.collect(),
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} files: {}", self.files.len(), self.files.join(", "))?;
        for (from, line, to) in &self.imports {
            writeln!(f, "  {from}:{line} imports {to}")?;
        }
        Ok(())
    }
}
