//! The map of the crates, `crates/README.md`, as data: which crate may import which.
//!
//! Two parts of the map are read.
//!
//! - The table under the heading `| crate | one line | never imports |`. A cell of the last column
//!   is `–` or a list with commas: `any crate of this workspace`, `every crate but NAME`, `std` (the crate is
//!   `#![no_std]`), a crate of ours, or a foreign crate. A foreign `NAME` includes `NAME-...` and
//!   `NAME_...`. A crate of ours is not imported directly; a foreign crate is not imported through
//!   crates of ours either.
//! - The first sentence of the paragraph with `◄`: chains with commas. In `A ◄ {B, C} ◄ D`, each
//!   crate may import every crate to its left, also through other chains. `everything ◄ A` lets
//!   `A` import all crates. A chain that begins with `in tests` holds for tests only.
//!
//! Backticks do not count. Packages outside `crates/` may import everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::problem::Problem;

/// Where the map is.
pub const MAP: &str = "crates/README.md";

const HEADING: &str = "| crate | one line | never imports |";
const ARROW: char = '◄';
const EVERYTHING: &str = "everything";

/// What one crate may and may not import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wall {
    /// The crates of ours that it may import directly.
    pub ours: BTreeSet<String>,
    /// The crates of ours that its tests may import besides.
    pub ours_in_tests: BTreeSet<String>,
    /// Foreign crates that it must not reach.
    pub never: Vec<String>,
    /// Where a list of `every crate but NAME` stands: the names.
    pub only: Option<Vec<String>>,
    /// Whether it must be `#![no_std]`.
    pub no_std: bool,
    /// Line of its row, from 1.
    pub line: usize,
}

/// The walls between the crates, by the folder of the crate.
pub type Walls = BTreeMap<String, Wall>;

/// Reads the walls from the text of the map. `foreign` are the names of all foreign packages.
///
/// # Errors
/// Every entry that means nothing: a crate that the table lacks, a package that does not exist.
pub fn walls(text: &str, foreign: &BTreeSet<String>) -> Result<Walls, Vec<Problem>> {
    let rows = rows(text);
    let names: BTreeSet<String> = rows.iter().map(|(_, name, _)| name.clone()).collect();
    let mut problems = Vec::new();
    let mut problem = |line: usize, what: String| {
        problems.push(Problem::at("map", MAP, line, what));
    };
    if rows.is_empty() {
        problem(0, format!("no table under `{HEADING}`"));
    }
    let (chains, line) = chains(text);
    let unknown = chains
        .iter()
        .flat_map(|chain| chain.groups.iter().flatten());
    for name in unknown.filter(|name| *name != EVERYTHING && !names.contains(*name)) {
        problem(line, format!("`{name}` is in a chain and not in the table"));
    }
    let mut walls = Walls::new();
    for (line, name, cell) in &rows {
        let mut wall = Wall {
            ours: left_of(name, &chains, &names, false),
            ours_in_tests: left_of(name, &chains, &names, true),
            line: *line,
            ..Wall::default()
        };
        for entry in cell.split(',').map(str::trim).filter(|entry| *entry != "–") {
            if !wall.forbid(entry, &names, foreign) {
                problem(*line, format!("`{entry}`: no crate has this name"));
            }
        }
        if walls.insert(name.clone(), wall).is_some() {
            problem(*line, format!("`{name}` has two rows"));
        }
    }
    match problems.is_empty() {
        true => Ok(walls),
        false => Err(problems),
    }
}

impl Wall {
    /// Adds one entry of the column `never imports`; false if it means nothing.
    fn forbid(
        &mut self,
        entry: &str,
        names: &BTreeSet<String>,
        foreign: &BTreeSet<String>,
    ) -> bool {
        if entry == "any crate of this workspace" {
            self.ours.clear();
        } else if entry == "std" {
            self.no_std = true;
        } else if let Some(name) = entry.strip_prefix("every crate but ") {
            self.only.get_or_insert_default().push(name.to_owned());
            return foreign.contains(name);
        } else if names.contains(entry) {
            self.ours.remove(entry);
        } else {
            self.never.push(entry.to_owned());
            return foreign.iter().any(|name| is_of(entry, name));
        }
        true
    }
}

/// Whether the package `name` is `family` or one of its companions, such as `family-core`.
pub fn is_of(family: &str, name: &str) -> bool {
    let rest = name.strip_prefix(family);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// Line, crate and last cell of each row of the table.
fn rows(text: &str) -> Vec<(usize, String, String)> {
    let lines = (1..).zip(text.lines());
    let table = lines
        .skip_while(|(_, line)| *line != HEADING)
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'));
    let row = |(number, line): (usize, &str)| {
        let plain = line.replace('`', "");
        let cells: Vec<&str> = plain.trim_matches('|').split('|').map(str::trim).collect();
        let (first, last) = (cells.first()?, cells.last()?);
        Some((number, (*first).to_owned(), (*last).to_owned()))
    };
    table.filter_map(row).collect()
}

/// Groups of crates, each of which may import those before it.
struct Chain {
    in_tests: bool,
    groups: Vec<Vec<String>>,
}

/// The chains and their line.
fn chains(text: &str) -> (Vec<Chain>, usize) {
    let mut fenced = false;
    let found = (1..).zip(text.lines()).find(|(_, line)| {
        fenced ^= line.starts_with("```");
        !fenced && line.contains(ARROW)
    });
    let Some((number, line)) = found else {
        return (Vec::new(), 0);
    };
    let plain = line.replace('`', "");
    let sentence = plain
        .split_once(". ")
        .map_or(plain.as_str(), |(first, _)| first);
    let mut depth = 0;
    let parts = sentence.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let chain = |part: &str| {
        let part = part.trim().trim_end_matches('.');
        let bare = part.strip_prefix("in tests ");
        let groups = bare.unwrap_or(part).split(ARROW).map(|group| {
            let names = group.trim().trim_matches(['{', '}']).split(',');
            names.map(|name| name.trim().to_owned()).collect()
        });
        Chain {
            in_tests: bare.is_some(),
            groups: groups.collect(),
        }
    };
    (parts.map(chain).collect(), number)
}

/// The crates that `name` may import according to the chains.
fn left_of(
    name: &str,
    chains: &[Chain],
    names: &BTreeSet<String>,
    in_tests: bool,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![name.to_owned()];
    let of_tests = chains.iter().filter(|chain| chain.in_tests == in_tests);
    let of_tests: Vec<&Chain> = of_tests.collect();
    while let Some(name) = open.pop() {
        for chain in &of_tests {
            let stands = |group: &Vec<String>| group.contains(&name) || group[..] == [EVERYTHING];
            let at = chain.groups.iter().skip(1).position(stands);
            for left in chain.groups[..at.map_or(0, |at| at + 1)].iter().flatten() {
                let all = left == EVERYTHING;
                let left = names.iter().filter(|known| all || *known == left);
                open.extend(left.filter(|left| found.insert((*left).clone())).cloned());
            }
        }
    }
    found.remove(name);
    found
}
