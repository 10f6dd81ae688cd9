//! The packages of the lock file against `.cargo/deny.toml`: sources, bans, licences, duplicates.
//!
//! The file is cargo-deny's. cargo-deny takes minutes to build, so a release runs it and the tests run
//! this: the same answers for the keys that the file uses. Sources and bans are read from
//! `Cargo.lock`, so they hold for every platform. Licences and duplicates are those of the packages
//! that this platform builds without features, which are present wherever the tests were compiled.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DepKindInfo, DependencyKind, Metadata, MetadataCommand, Node, PackageId};
use serde::Deserialize;

use crate::problem::Problem;
use crate::repository::Repository;

/// Where cargo-deny looks for its configuration.
pub const POLICY: &str = ".cargo/deny.toml";

const LOCK: &str = "Cargo.lock";

/// The part of cargo-deny's configuration that is checked here.
#[derive(Debug, Deserialize)]
pub struct Policy {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<LicenseException>,
}

#[derive(Debug, Deserialize)]
struct LicenseException {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

impl Policy {
    /// Reads cargo-deny's configuration.
    ///
    /// # Errors
    /// If it is not TOML or lacks one of the lists.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context(POLICY)
    }
}

/// One package that is built.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name in its registry.
    pub name: String,
    /// Version.
    pub version: String,
    /// SPDX expression of its manifest.
    pub license: Option<String>,
    /// Whether only tests use it.
    pub in_tests: bool,
}

/// Checks the lock file, and the packages that this platform builds.
///
/// # Errors
/// If `cargo metadata` fails or the policy cannot be read.
pub fn check(repository: &Repository) -> Result<Vec<Problem>> {
    let text = |path: &str| {
        let found = repository.files.iter().find(|file| file.path == path);
        found
            .map(|file| file.text.as_str())
            .context(path.to_owned())
    };
    let policy = Policy::parse(text(POLICY)?)?;
    let mut problems = check_lock(&policy, text(LOCK)?)?;
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--locked", "--offline", "--filter-platform", &host];
    let metadata = MetadataCommand::new()
        .manifest_path(repository.root.join("Cargo.toml"))
        .other_options(options.map(str::to_owned))
        .exec()
        .context("cargo metadata")?;
    let shipped = shipped(&metadata);
    let packages = metadata.packages.iter().map(|package| Package {
        name: package.name.to_string(),
        version: package.version.to_string(),
        license: package.license.clone(),
        in_tests: !shipped.contains(&package.id),
    });
    problems.extend(check_packages(&policy, &packages.collect::<Vec<_>>()));
    Ok(problems)
}

/// The packages that the workspace reaches without the dependencies of its tests.
fn shipped(metadata: &Metadata) -> BTreeSet<&PackageId> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<&PackageId, &Node> = nodes.map(|node| (&node.id, node)).collect();
    let mut shipped: BTreeSet<&PackageId> = metadata.workspace_members.iter().collect();
    let mut open: Vec<&PackageId> = shipped.iter().copied().collect();
    while let Some(id) = open.pop() {
        let edges = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let ships = |kind: &DepKindInfo| kind.kind != DependencyKind::Development;
        for edge in edges.filter(|edge| edge.dep_kinds.iter().any(ships)) {
            if shipped.insert(&edge.pkg) {
                open.push(&edge.pkg);
            }
        }
    }
    shipped
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    source: Option<String>,
}

/// Foreign sources and banned packages of a lock file.
///
/// # Errors
/// If the lock file is not TOML.
pub fn check_lock(policy: &Policy, text: &str) -> Result<Vec<Problem>> {
    let lock: Lock = toml::from_str(text).context(LOCK)?;
    let mut problems = Vec::new();
    for package in &lock.package {
        let name = &package.name;
        let registry = |source: &String| {
            let url = source.strip_prefix("registry+");
            url.is_some_and(|url| policy.sources.allow_registry.iter().any(|it| it == url))
        };
        // A package without a source is of this workspace.
        if let Some(source) = package.source.as_ref().filter(|source| !registry(source)) {
            problems.push(problem(LOCK, format!("`{name}` comes from {source}")));
        }
        if let Some(ban) = policy.bans.deny.iter().find(|ban| ban.name == *name) {
            problems.push(problem(LOCK, format!("`{name}` is banned: {}", ban.reason)));
        }
    }
    Ok(problems)
}

/// Licences and duplicates of packages, and what the policy names without need.
pub fn check_packages(policy: &Policy, packages: &[Package]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        // cargo-deny, too, lets tests use another version.
        if !package.in_tests {
            let found = versions.entry(&package.name).or_default();
            found.push(&package.version);
        }
        if !is_licensed(policy, package) {
            let license = package.license.as_deref().unwrap_or("no licence");
            let what = format!("`{}` is under {license}", package.name);
            problems.push(problem(LOCK, what));
        }
    }
    let skipped = |name: &str| policy.bans.skip.iter().any(|skip| skip.name == name);
    for (name, found) in versions.iter().filter(|(name, _)| !skipped(name)) {
        if found.len() > 1 {
            let what = format!("`{name}` has versions {}", found.join(", "));
            problems.push(problem(LOCK, what));
        }
    }
    let single = |name: &str| versions.get(name).is_none_or(|found| found.len() < 2);
    for skip in policy.bans.skip.iter().filter(|skip| single(&skip.name)) {
        let what = format!("`{}` has one version: remove it from `skip`", skip.name);
        problems.push(problem(POLICY, what));
    }
    let exceptions = policy.licenses.exceptions.iter();
    for exception in exceptions.filter(|it| !versions.contains_key(it.name.as_str())) {
        let what = format!("`{}` is not built: remove its exception", exception.name);
        problems.push(problem(POLICY, what));
    }
    problems
}

fn problem(path: &str, what: String) -> Problem {
    Problem::of_file("supply", path, what)
}

/// Whether the policy allows what the package's licence leaves to choose.
fn is_licensed(policy: &Policy, package: &Package) -> bool {
    let exceptions = policy.licenses.exceptions.iter();
    let of_package = exceptions.filter(|exception| exception.name == package.name);
    let of_package: Vec<&String> = of_package.flat_map(|it| &it.allow).collect();
    let allows = |license: &str| {
        let mut allowed = policy
            .licenses
            .allow
            .iter()
            .chain(of_package.iter().copied());
        allowed.any(|it| it == license)
    };
    let license = package.license.as_deref();
    license.is_some_and(|license| Expression::new(license).holds(&allows))
}

/// An SPDX expression, read from left to right.
struct Expression<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

impl<'a> Expression<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            let mut rest = word;
            while let Some(at) = rest.find(['(', ')', '/']) {
                words.extend([&rest[..at], &rest[at..=at]]);
                rest = &rest[at + 1..];
            }
            words.push(rest);
        }
        words.retain(|word| !word.is_empty());
        Self {
            words: words.into_iter().peekable(),
        }
    }

    /// Whether the whole expression is read and holds.
    fn holds(mut self, allows: &impl Fn(&str) -> bool) -> bool {
        self.any(allows) && self.words.next().is_none()
    }

    /// Terms with `OR`; old manifests write `/`.
    fn any(&mut self, allows: &impl Fn(&str) -> bool) -> bool {
        let mut holds = self.all(allows);
        while self
            .words
            .next_if(|word| ["OR", "/"].contains(word))
            .is_some()
        {
            holds |= self.all(allows);
        }
        holds
    }

    /// Terms with `AND`.
    fn all(&mut self, allows: &impl Fn(&str) -> bool) -> bool {
        let mut holds = self.one(allows);
        while self.words.next_if_eq(&"AND").is_some() {
            holds &= self.one(allows);
        }
        holds
    }

    /// A licence, with its exception if it has one, or an expression in parentheses.
    fn one(&mut self, allows: &impl Fn(&str) -> bool) -> bool {
        if self.words.next_if_eq(&"(").is_some() {
            let holds = self.any(allows);
            return self.words.next_if_eq(&")").is_some() && holds;
        }
        let license = self.words.next().unwrap_or_default();
        match self.words.next_if_eq(&"WITH") {
            None => allows(license),
            Some(_) => {
                let exception = self.words.next().unwrap_or_default();
                allows(&format!("{license} WITH {exception}"))
            }
        }
    }
}
