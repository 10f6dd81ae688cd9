//! The command line. `verify` prints every violation of a rule and writes nothing. `measure` prints
//! the counts of the structure. `fix` renders the measured tables in the documents. `compare`
//! compares a new benchmark result with a kept one.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use asynclane_xtask::compare::{Tolerance, compare};
use asynclane_xtask::measure::measure;
use asynclane_xtask::result::Report;
use asynclane_xtask::{Repository, rules, verify};

const USAGE: &str =
    "usage: cargo xtask verify | measure | fix | compare [--counts] KEPT.json NEW.json";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => report(&root),
        ["measure"] => {
            print!("{}", measure(&Repository::load(&root)?)?);
            Ok(ExitCode::SUCCESS)
        }
        ["fix"] => fix(&root),
        ["compare", kept, new] => against(kept, new, Tolerance::default()),
        ["compare", "--counts", kept, new] => {
            let tolerance = Tolerance {
                ratio: None,
                ..Tolerance::default()
            };
            against(kept, new, tolerance)
        }
        _ => bail!(USAGE),
    }
}

/// Prints the violations, and the files over the soft limit.
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

/// Prints every value that is worse in `new`.
fn against(kept: &str, new: &str, tolerance: Tolerance) -> Result<ExitCode> {
    let read = |path: &str| -> Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
        serde_json::from_str(&text).with_context(|| path.to_owned())
    };
    let worse = compare(&read(kept)?, &read(new)?, tolerance);
    for line in &worse {
        println!("{line}");
    }
    println!("{} values are worse than in {kept}", worse.len());
    Ok(ExitCode::from(u8::from(!worse.is_empty())))
}

/// Writes the documents whose tables differ from their result files.
fn fix(root: &Path) -> Result<ExitCode> {
    let files = Repository::load(root)?.files;
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let text = rules::tables::rendered(&file.text, &files)
            .map_err(|why| anyhow!("{}: {why}", file.path))?;
        if text != file.text {
            std::fs::write(root.join(&file.path), text).with_context(|| file.path.clone())?;
            println!("{}: tables rendered", file.path);
        }
    }
    Ok(ExitCode::SUCCESS)
}
