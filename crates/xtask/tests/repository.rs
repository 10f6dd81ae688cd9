//! This repository keeps its own rules.

use std::path::Path;

use asynclane_xtask::verify;

#[test]
fn the_repository_keeps_its_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let problems = verify(&root).expect("the repository can be read");
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} problems\n{}",
        lines.len(),
        lines.join("\n")
    );
}
