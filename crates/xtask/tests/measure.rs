//! The measure of the structure holds.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use asynclane_xtask::Repository;
use asynclane_xtask::measure::{LABORATORY, Measure, measure, packages};

static MEASURE: LazyLock<Measure> = LazyLock::new(|| {
    let repository = Repository::load(&root()).expect("the repository can be read");
    measure(&repository).expect("cargo names the packages of the binary")
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn an_addition_touches_its_own_file_and_one_line() {
    for task in &MEASURE.tasks {
        assert!(task.files() <= 1 && task.lines() <= 1, "{task}");
    }
}

#[test]
fn the_served_binary_is_free_of_the_laboratory() {
    let linked = &MEASURE.linked;
    assert_eq!(linked.of_laboratory, [""; 0]);
    assert!(
        linked.packages.contains(&"asynclane-server".to_owned()),
        "{linked}"
    );
    let laboratory = packages(&root(), "asynclane-lab").expect("cargo names its packages");
    for name in LABORATORY {
        assert!(laboratory.iter().any(|package| package == name), "{name}");
    }
}

#[test]
fn files_import_each_other_within_one_folder_only() {
    let circles: Vec<String> = MEASURE
        .circles_across_folders()
        .map(ToString::to_string)
        .collect();
    assert!(circles.is_empty(), "{}", circles.concat());
}

/// Clippy limits the lines of code of a function; this counts comments too, and code for devices.
#[test]
fn functions_have_at_most_70_lines() {
    if let Some((path, function)) = MEASURE.functions.first() {
        let (line, name, lines) = (function.line, &function.name, function.lines);
        assert!(lines <= 70, "{path}:{line}: {name} has {lines} lines");
    }
}
