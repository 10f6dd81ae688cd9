//! Circles: files that import each other, directly or over other files.

use std::collections::{BTreeMap, BTreeSet};

use super::Imports;

/// Files that all reach each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    /// Sorted paths, at least two.
    pub files: Vec<String>,
}

impl Circle {
    /// True if one folder below a crate's `src` holds all files; `NAME.rs` is a part of `NAME/`.
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

/// The imports among files of which neither holds the other: those of a module and of its parts are left out.
pub fn siblings(imports: &Imports) -> Imports {
    let holds = |a: &str, b: &str| module(b).starts_with(&module(a));
    let apart = |(file, others): (&String, &BTreeSet<String>)| {
        let others = others.iter().filter(|other| !holds(file, other) && !holds(other, file));
        (file.clone(), others.cloned().collect())
    };
    imports.iter().map(apart).collect()
}

/// All circles, the longest first.
pub fn circles(imports: &Imports) -> Vec<Circle> {
    let files = imports.keys().map(|file| (file, reachable(imports, file)));
    let reached: BTreeMap<&String, BTreeSet<&String>> = files.collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, from_here) in &reached {
        let back = |other: &&&String| reached.get(**other).is_some_and(|it| it.contains(*file));
        let files: BTreeSet<&String> = from_here.iter().filter(back).copied().collect();
        if files.contains(*file) && seen.insert(files.clone()) {
            let files = files.into_iter().cloned().collect();
            circles.push(Circle { files });
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
        let next = imports.get(file).into_iter().flatten();
        open.extend(next.filter(|next| found.insert(*next)));
    }
    found
}
