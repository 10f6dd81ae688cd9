//! Who may import whom: the walls between crates, over `cargo metadata`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::{Problem, Repository};

/// Ours are named by their folder; the package is `asynclane-<folder>`.
const PREFIX: &str = "asynclane-";

/// What one crate may and may not import.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    /// Folder of the crate.
    pub krate: &'static str,
    /// The crates of ours it may import.
    pub ours: &'static [&'static str],
    /// Crates of others that neither it nor a crate of ours below it imports: `"candle"` stands
    /// for `candle` and everything named `candle-...`; `"*"` for all but `libm`, the mathematics that
    /// `core` lacks.
    pub never: &'static [&'static str],
}

/// Crates of ours that any crate may use in its tests besides those it may import.
const IN_TESTS: &[&str] = &["sim", "demo"];

/// The crates of the product.
const PRODUCT: &[&str] = &[
    "decode", "step", "engine", "kernels", "model", "text", "server", "demo",
];

/// Everything that the laboratory, the rules and the tests across crates may import.
const ALL: &[&str] = &[
    "decode", "step", "engine", "sim", "kernels", "model", "text", "server", "demo", "cli", "lab",
];

/// What only the laboratory needs: arrival times and plots.
const OF_THE_LABORATORY: &[&str] = &["rand_distr", "plotters"];

/// The table of the map in `crates/README.md`.
pub const WALLS: &[Wall] = &[
    Wall {
        krate: "decode",
        ours: &[],
        never: &["*"],
    },
    Wall {
        krate: "step",
        ours: &["decode"],
        never: &["candle", "tokio"],
    },
    Wall {
        krate: "engine",
        ours: &["decode", "step"],
        never: &[
            "candle",
            "axum",
            "serde",
            "serde_json",
            "prometheus",
            "metrics",
        ],
    },
    Wall {
        krate: "sim",
        ours: &["decode", "step"],
        never: &["candle", "tokio"],
    },
    Wall {
        krate: "kernels",
        ours: &[],
        never: &["tokio", "axum"],
    },
    Wall {
        krate: "model",
        ours: &["decode", "step", "kernels"],
        never: &["tokio", "axum"],
    },
    Wall {
        krate: "text",
        ours: &["decode", "step"],
        never: &["candle", "axum"],
    },
    Wall {
        krate: "server",
        ours: &["decode", "step", "engine", "text"],
        never: &["candle"],
    },
    Wall {
        krate: "demo",
        ours: &[],
        never: &["candle", "tokio", "axum"],
    },
    Wall {
        krate: "cli",
        ours: PRODUCT,
        never: OF_THE_LABORATORY,
    },
    Wall {
        krate: "lab",
        ours: ALL,
        never: &[],
    },
    Wall {
        krate: "xtask",
        ours: ALL,
        never: &[],
    },
    Wall {
        krate: "tests",
        ours: ALL,
        never: &[],
    },
];

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

/// Checks the workspace against [`WALLS`].
///
/// # Errors
/// If `cargo metadata` fails.
pub fn check(repository: &Repository) -> Result<Vec<Problem>> {
    let mut command = MetadataCommand::new();
    // Manifests alone: no lock file is touched and no registry is asked.
    command
        .manifest_path(repository.root.join("Cargo.toml"))
        .no_deps();
    let metadata = command.exec().context("cargo metadata")?;
    let graph = metadata.packages.iter().map(|package| {
        let edges = package.dependencies.iter().map(|dependency| Edge {
            to: dependency.name.clone(),
            in_tests: dependency.kind == DependencyKind::Development,
        });
        (package.name.to_string(), edges.collect())
    });
    Ok(check_graph(WALLS, &graph.collect()))
}

/// Checks a graph of direct dependencies against walls.
pub fn check_graph(walls: &[Wall], graph: &Graph) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (package, edges) in graph {
        let folder = folder(package);
        let problem = |what| Problem {
            rule: "dependencies",
            path: manifest(folder),
            line: 0,
            what,
        };
        let Some(wall) = walls.iter().find(|wall| wall.krate == folder) else {
            problems.push(problem("the crate is not in the table of walls".to_owned()));
            continue;
        };
        for edge in edges.iter().filter(|edge| graph.contains_key(&edge.to)) {
            let to = self::folder(&edge.to);
            if !(wall.ours.contains(&to) || (edge.in_tests && IN_TESTS.contains(&to))) {
                problems.push(problem(format!("`{folder}` must not import `{to}`")));
            }
        }
        for path in forbidden(graph, package, wall.never) {
            problems.push(problem(format!("`{folder}` must not reach `{path}`")));
        }
    }
    let missing = walls
        .iter()
        .filter(|wall| !graph.keys().any(|name| folder(name) == wall.krate));
    problems.extend(missing.map(|wall| Problem {
        rule: "dependencies",
        path: manifest(wall.krate),
        line: 0,
        what: "the crate is in the table of walls and not in the workspace".to_owned(),
    }));
    problems
}

/// Paths from a package over crates of ours to crates it must never reach.
fn forbidden(graph: &Graph, package: &str, never: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![vec![package.to_owned()]];
    while let Some(path) = open.pop() {
        let last = path.last().map_or("", String::as_str);
        for edge in graph
            .get(last)
            .into_iter()
            .flatten()
            .filter(|edge| !edge.in_tests)
        {
            if path.contains(&edge.to) {
                continue;
            }
            let longer = [&path[..], std::slice::from_ref(&edge.to)].concat();
            if graph.contains_key(&edge.to) {
                open.push(longer);
            } else if never.iter().any(|never| matches(never, &edge.to)) {
                found.push(longer[1..].join(" > "));
            }
        }
    }
    found.sort();
    found
}

fn matches(never: &str, name: &str) -> bool {
    let longer = name
        .strip_prefix(never)
        .is_some_and(|rest| rest.starts_with('-'));
    (never == "*" && name != "libm") || never == name || longer
}

fn folder(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

fn manifest(folder: &str) -> String {
    match folder {
        "tests" => "tests/Cargo.toml".to_owned(),
        folder => format!("crates/{folder}/Cargo.toml"),
    }
}
