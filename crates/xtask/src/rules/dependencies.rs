//! The walls between crates: the manifests against the map.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::map::{MAP, Wall, Walls, belongs_to, walls};
use crate::repository::{File, Problem, Repository};

/// A crate is named by its folder; its package is `asynclane-FOLDER`.
const PREFIX: &str = "asynclane-";
/// Crates of ours that every crate's tests may import.
const IN_TESTS: [&str; 2] = ["sim", "demo"];

/// One direct dependency.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// Package name.
    pub name: String,
    /// True if only tests and benchmarks use it.
    pub in_tests: bool,
}

/// Direct dependencies by package name.
pub type Graph = BTreeMap<String, Vec<Dependency>>;

/// Checks the workspace against the map.
///
/// # Errors
/// If `cargo metadata` fails.
pub fn check(repository: &Repository) -> Result<Vec<Problem>> {
    let mut command = MetadataCommand::new();
    // Manifests only: cargo neither changes the lock file nor asks a registry.
    command.manifest_path(repository.root.join("Cargo.toml")).no_deps();
    let metadata = command.exec().context("cargo metadata")?;
    let crates = repository.root.canonicalize()?.join("crates");
    let mut graph = Graph::new();
    for package in &metadata.packages {
        let manifest = package.manifest_path.as_std_path().canonicalize()?;
        if !manifest.starts_with(&crates) {
            continue;
        }
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            in_tests: dependency.kind == DependencyKind::Development,
        });
        graph.insert(package.name.to_string(), dependencies.collect());
    }
    let walls = match walls_of(&repository.files) {
        Ok(walls) => walls,
        Err(problems) => return Ok(problems),
    };
    let mut problems = check_graph(&walls, &graph);
    problems.extend(check_std(&walls, &repository.files));
    Ok(problems)
}

/// The walls of a repository with a map and a lock file.
///
/// # Errors
/// Entries of the map without a meaning.
pub fn walls_of(files: &[File]) -> Result<Walls, Vec<Problem>> {
    let text = |path: &str| {
        let found = files.iter().find(|file| file.path == path);
        found.map_or("", |file| file.text.as_str())
    };
    let names = text("Cargo.lock").lines();
    let names = names.filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let foreign = names.filter(|name| !name.starts_with(PREFIX));
    walls(text(MAP), &foreign.map(str::to_owned).collect())
}

/// Checks a graph of direct dependencies against walls. A package of ours without a row, such as one of
/// the laboratory, is imported by no crate.
pub fn check_graph(walls: &Walls, graph: &Graph) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (package, dependencies) in graph {
        let folder = folder(package);
        let problem = |message| Problem::of_file("dependencies", &manifest(folder), message);
        let Some(wall) = walls.get(folder) else {
            problems.push(problem(format!("`{folder}` has no row in {MAP}")));
            continue;
        };
        for dependency in dependencies.iter().filter(|it| it.name.starts_with(PREFIX)) {
            let name = self::folder(&dependency.name);
            if !(wall.ours.contains(name) || (dependency.in_tests && IN_TESTS.contains(&name))) {
                problems.push(problem(format!("`{folder}` must not import `{name}`")));
            }
        }
        for path in forbidden(graph, package, wall) {
            problems.push(problem(format!("`{folder}` must not reach `{path}`")));
        }
    }
    let known: BTreeSet<&str> = graph.keys().map(|name| folder(name)).collect();
    let missing = walls.iter().filter(|(name, _)| !known.contains(name.as_str()));
    problems.extend(missing.map(|(name, wall)| {
        Problem::at("map", MAP, wall.line, format!("no crate `crates/{name}`"))
    }));
    problems
}

/// A crate that never imports `std` says so to the compiler.
fn check_std(walls: &Walls, files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, _) in walls.iter().filter(|(_, wall)| wall.no_std) {
        let path = format!("crates/{name}/src/lib.rs");
        let syntax = files.iter().find(|file| file.path == path);
        let lines = syntax.and_then(File::syntax);
        let lines = lines.map(|syntax| syntax.lines_of(&["#", "!", "[", "no_std"]));
        if lines.is_none_or(|lines| lines.is_empty()) {
            problems.push(Problem::of_file("dependencies", &path, "no `#![no_std]`"));
        }
    }
    problems
}

/// Paths from a package over crates of ours to foreign crates that it must not reach.
fn forbidden(graph: &Graph, package: &str, wall: &Wall) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![vec![package.to_owned()]];
    while let Some(path) = open.pop() {
        let last = path.last().map_or("", String::as_str);
        let dependencies = graph.get(last).into_iter().flatten();
        for dependency in dependencies.filter(|it| !it.in_tests && !path.contains(&it.name)) {
            let longer = [&path[..], std::slice::from_ref(&dependency.name)].concat();
            if graph.contains_key(&dependency.name) {
                open.push(longer);
            } else if is_forbidden(wall, &dependency.name) {
                found.push(longer[1..].join(" > "));
            }
        }
    }
    found.sort();
    found
}

fn is_forbidden(wall: &Wall, name: &str) -> bool {
    let outside = |only: &Vec<String>| !only.iter().any(|one| one == name);
    let never = wall.never.iter().any(|family| belongs_to(name, family));
    wall.only.as_ref().is_some_and(outside) || never
}

fn folder(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

fn manifest(folder: &str) -> String {
    format!("crates/{folder}/Cargo.toml")
}
