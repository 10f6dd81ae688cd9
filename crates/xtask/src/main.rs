//! The command line: `verify` prints every violation of a rule, `compare` every figure of a benchmark
//! result that is worse than in a kept one.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use asynclane_xtask::compare::compare;
use asynclane_xtask::rules::verify;
use serde_json::Value;

const USAGE: &str = "usage: cargo xtask verify | compare [--counts] KEPT.json NEW.json";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let lines: Vec<String> = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let problems = verify(&root)?;
            problems.iter().map(ToString::to_string).collect()
        }
        ["compare", kept, new] => compare(&read(kept)?, &read(new)?, true),
        ["compare", "--counts", kept, new] => compare(&read(kept)?, &read(new)?, false),
        _ => bail!(USAGE),
    };
    for line in &lines {
        println!("{line}");
    }
    println!("{} problems", lines.len());
    Ok(ExitCode::from(u8::from(!lines.is_empty())))
}

fn read(path: &str) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    serde_json::from_str(&text).with_context(|| path.to_owned())
}
