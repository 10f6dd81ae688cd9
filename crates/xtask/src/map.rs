//! The walls between crates, read from the table of `crates/README.md`.
//!
//! The table stands under the heading `| crate | one line | imports | never reaches |`. The column
//! `imports` lists the crates of ours that a crate may import directly: names with commas, `all`, or `–`.
//! Tests may also import `sim` and `demo`. The column `never reaches` lists foreign packages that a crate
//! imports neither directly nor through crates of ours: a name, which includes `NAME-...` and `NAME_...`,
//! `every crate but NAME`, or `std`, which means that the crate is `#![no_std]`. Backticks do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::Problem;

/// Path of the map.
pub const MAP: &str = "crates/README.md";

const HEADING: &str = "| crate | one line | imports | never reaches |";

/// The imports of one crate that are allowed and forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wall {
    /// Crates of ours that it may import directly.
    pub ours: BTreeSet<String>,
    /// Foreign packages that it must not reach.
    pub never: Vec<String>,
    /// The only foreign packages that it may reach, if the table restricts them.
    pub only: Option<Vec<String>>,
    /// True if the crate must be `#![no_std]`.
    pub no_std: bool,
    /// Line of its row, from 1.
    pub line: usize,
}

/// The walls between the crates, by the folder of the crate.
pub type Walls = BTreeMap<String, Wall>;

/// Reads the walls from the text of the map. `foreign` are the names of all foreign packages.
///
/// # Errors
/// Every entry without a meaning: a crate without a row, a package that does not exist.
pub fn walls(text: &str, foreign: &BTreeSet<String>) -> Result<Walls, Vec<Problem>> {
    let rows = rows(text);
    let names: BTreeSet<String> = rows.iter().map(|row| row.1[0].clone()).collect();
    let (mut walls, mut problems) = (Walls::new(), Vec::new());
    for (line, cells) in &rows {
        let mut wall = Wall { line: *line, ..Wall::default() };
        let unknown = wall.read(&cells[2], &cells[3], &names, foreign).into_iter();
        let unknown = unknown.map(|entry| format!("`{entry}`: no crate has this name"));
        problems.extend(unknown.map(|message| Problem::at("map", MAP, *line, message)));
        if walls.insert(cells[0].clone(), wall).is_some() {
            let message = format!("`{}` has two rows", cells[0]);
            problems.push(Problem::at("map", MAP, *line, message));
        }
    }
    if rows.is_empty() {
        let message = format!("no table under `{HEADING}`");
        problems.push(Problem::of_file("map", MAP, message));
    }
    if problems.is_empty() { Ok(walls) } else { Err(problems) }
}

impl Wall {
    /// Reads both columns and returns the entries without a meaning.
    fn read(
        &mut self,
        imports: &str,
        never: &str,
        names: &BTreeSet<String>,
        foreign: &BTreeSet<String>,
    ) -> Vec<String> {
        let entries = |cell: &str| {
            let entries = cell.split(',').map(|entry| entry.trim().to_owned());
            entries.filter(|entry| entry != "–").collect::<Vec<_>>()
        };
        let mut unknown = Vec::new();
        for entry in entries(imports) {
            match entry.as_str() {
                "all" => self.ours.clone_from(names),
                name if names.contains(name) => drop(self.ours.insert(entry)),
                _ => unknown.push(entry),
            }
        }
        for entry in entries(never) {
            let allowed = entry.strip_prefix("every crate but ");
            let name = allowed.unwrap_or(&entry);
            if !foreign.iter().any(|package| belongs_to(package, name)) && entry != "std" {
                unknown.push(name.to_owned());
            }
            match (entry.as_str(), allowed) {
                ("std", _) => self.no_std = true,
                (_, Some(name)) => self.only.get_or_insert_default().push(name.to_owned()),
                _ => self.never.push(entry),
            }
        }
        unknown
    }
}

/// True if `package` is `family` or one of its companions, such as `family-core`.
pub fn belongs_to(package: &str, family: &str) -> bool {
    let rest = package.strip_prefix(family);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// Line and the four cells of each row of the table.
fn rows(text: &str) -> Vec<(usize, [String; 4])> {
    let lines = (1..).zip(text.lines()).skip_while(|(_, line)| *line != HEADING);
    let table = lines.skip(2).take_while(|(_, line)| line.starts_with('|'));
    let row = |(number, line): (usize, &str)| {
        let plain = line.replace('`', "");
        let cells = plain.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        Some((number, cells.collect::<Vec<_>>().try_into().ok()?))
    };
    table.filter_map(row).collect()
}
