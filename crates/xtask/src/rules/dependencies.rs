//! The walls between crates: the manifests against the map.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::map::{MAP, Wall, Walls, is_of, walls};
use crate::problem::Problem;
use crate::repository::{File, Repository};

/// A crate is named by its folder; its package is `asynclane-FOLDER`.
const PREFIX: &str = "asynclane-";

/// One direct dependency.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Package name.
    pub to: String,
    /// Whether only tests and benchmarks use it.
    pub in_tests: bool,
}

/// Direct dependencies by package name.
pub type Graph = BTreeMap<String, Vec<Edge>>;

/// Checks the workspace against the map.
///
/// # Errors
/// If `cargo metadata` fails.
pub fn check(repository: &Repository) -> Result<Vec<Problem>> {
    let mut command = MetadataCommand::new();
    // Manifests only: cargo neither changes the lock file nor asks a registry.
    command
        .manifest_path(repository.root.join("Cargo.toml"))
        .no_deps();
    let metadata = command.exec().context("cargo metadata")?;
    let crates = repository.root.canonicalize()?.join("crates");
    let packages = metadata.packages.iter().filter(|package| {
        let manifest = package.manifest_path.as_std_path().canonicalize();
        manifest.is_ok_and(|manifest| manifest.starts_with(&crates))
    });
    let graph = packages.map(|package| {
        let edges = package.dependencies.iter().map(|dependency| Edge {
            to: dependency.name.clone(),
            in_tests: dependency.kind == DependencyKind::Development,
        });
        (package.name.to_string(), edges.collect())
    });
    Ok(match walls_of(&repository.files) {
        Ok(walls) => {
            let mut problems = check_graph(&walls, &graph.collect());
            problems.extend(check_std(&walls, &repository.files));
            problems
        }
        Err(problems) => problems,
    })
}

/// The walls of a repository with a map and a lock file.
///
/// # Errors
/// Entries of the map that mean nothing.
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

/// Checks a graph of direct dependencies against walls.
pub fn check_graph(walls: &Walls, graph: &Graph) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (package, edges) in graph {
        let folder = folder(package);
        let problem = |what| Problem::of_file("dependencies", &manifest(folder), what);
        let Some(wall) = walls.get(folder) else {
            problems.push(problem(format!("`{folder}` has no row in {MAP}")));
            continue;
        };
        for edge in edges.iter().filter(|edge| edge.to.starts_with(PREFIX)) {
            let to = self::folder(&edge.to);
            if !(wall.ours.contains(to) || (edge.in_tests && wall.ours_in_tests.contains(to))) {
                problems.push(problem(format!("`{folder}` must not import `{to}`")));
            }
        }
        for path in forbidden(graph, package, wall) {
            problems.push(problem(format!("`{folder}` must not reach `{path}`")));
        }
    }
    let known: BTreeSet<&str> = graph.keys().map(|name| folder(name)).collect();
    let missing = walls
        .iter()
        .filter(|(name, _)| !known.contains(name.as_str()));
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
        let edges = graph.get(last).into_iter().flatten();
        for edge in edges.filter(|edge| !edge.in_tests && !path.contains(&edge.to)) {
            let longer = [&path[..], std::slice::from_ref(&edge.to)].concat();
            if graph.contains_key(&edge.to) {
                open.push(longer);
            } else if is_forbidden(wall, &edge.to) {
                found.push(longer[1..].join(" > "));
            }
        }
    }
    found.sort();
    found
}

fn is_forbidden(wall: &Wall, name: &str) -> bool {
    let outside = |only: &Vec<String>| !only.iter().any(|one| one == name);
    wall.only.as_ref().is_some_and(outside) || wall.never.iter().any(|never| is_of(never, name))
}

fn folder(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

fn manifest(folder: &str) -> String {
    format!("crates/{folder}/Cargo.toml")
}
