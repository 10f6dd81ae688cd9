//! The served binary does not link the laboratory.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Packages that only the laboratory needs. `rand_distr` is not among them, because candle needs it.
const LABORATORY: [&str; 3] = ["asynclane-lab", "asynclane-sim", "plotters"];

/// Names of the packages that `package` links, itself included.
fn linked(package: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--package", package])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("names are UTF-8");
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_served_binary_is_free_of_the_laboratory() {
    let (product, lab) = (linked("asynclane-cli"), linked("asynclane-lab"));
    for name in LABORATORY {
        assert!(lab.contains(name), "{name}: the laboratory links it");
        assert!(
            !product.contains(name),
            "{name}: only the laboratory links it"
        );
    }
    assert!(product.contains("asynclane-server"), "{product:?}");
}
