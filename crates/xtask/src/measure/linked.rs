//! The packages that the served binary links.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repository::Repository;

/// Package of the served binary.
const BINARY: &str = "asynclane-cli";
/// Packages that only the laboratory links.
pub const LABORATORY: [&str; 3] = ["asynclane-lab", "asynclane-sim", "plotters"];
/// Modules that belong to the laboratory: the interpreter of the grader, and plots.
const OF_LABORATORY: [&str; 2] = ["python", "plot"];

/// The packages in the served binary.
pub struct Linked {
    /// Names of all packages, sorted.
    pub packages: Vec<String>,
    /// Packages and files of the laboratory among them.
    pub of_laboratory: Vec<String>,
}

/// Counts the packages of the served binary with its default features.
pub(super) fn linked(repository: &Repository) -> Result<Linked> {
    let packages = packages(&repository.root, BINARY)?;
    let of_laboratory = packages
        .iter()
        .filter(|name| LABORATORY.contains(&name.as_str()));
    let mut of_laboratory: Vec<String> = of_laboratory.cloned().collect();
    of_laboratory.extend(files(repository, &packages));
    Ok(Linked {
        packages,
        of_laboratory,
    })
}

/// Sorted names of the packages that `package` links, itself included.
///
/// # Errors
/// If cargo fails.
pub fn packages(root: &Path, package: &str) -> Result<Vec<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--package", package])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root)
        .output()
        .context("cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("cargo tree")?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut packages: Vec<String> = names.map(str::to_owned).collect();
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Source files of linked packages that are modules of the laboratory.
fn files(repository: &Repository, packages: &[String]) -> Vec<String> {
    let is_linked = |folder: &str| packages.contains(&format!("asynclane-{folder}"));
    let sources = repository.files.iter().filter(|file| {
        let source = file.path.contains("/src/") && !file.is_test();
        source && file.krate().is_some_and(is_linked)
    });
    let named = sources.filter(|file| {
        let below = file.path.split('/').skip(3);
        below
            .into_iter()
            .any(|part| OF_LABORATORY.contains(&part.trim_end_matches(".rs")))
    });
    named.map(|file| file.path.clone()).collect()
}

impl fmt::Display for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = self.packages.iter();
        let ours: Vec<&str> = ours
            .filter_map(|name| name.strip_prefix("asynclane-"))
            .collect();
        writeln!(
            f,
            "packages in the served binary: {}, ours: {}",
            self.packages.len(),
            ours.join(", ")
        )?;
        writeln!(
            f,
            "of the laboratory among them: {}",
            self.of_laboratory.len()
        )?;
        for name in &self.of_laboratory {
            writeln!(f, "  {name}")?;
        }
        Ok(())
    }
}
