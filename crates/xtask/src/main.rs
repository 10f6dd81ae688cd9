//! The command line of the repository's rules: `verify` prints every violation.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use asynclane_xtask::{Repository, rules, verify};

const USAGE: &str = "usage: cargo run -p asynclane-xtask -- verify";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => report(&root),
        _ => bail!(USAGE),
    }
}

fn report(root: &Path) -> Result<ExitCode> {
    for note in rules::budgets::notes(&Repository::load(root)?.files) {
        println!("note: {note}");
    }
    let problems = verify(root)?;
    for problem in &problems {
        println!("{problem}");
    }
    println!("{} problems", problems.len());
    Ok(ExitCode::from(u8::from(!problems.is_empty())))
}
