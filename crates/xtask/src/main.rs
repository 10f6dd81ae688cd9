//! `cargo xtask verify` prints every violation of a rule.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use asynclane_xtask::rules::verify;

fn main() -> Result<ExitCode> {
    if !std::env::args().skip(1).eq(["verify"]) {
        bail!("usage: cargo xtask verify");
    }
    let problems = verify(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
    for problem in &problems {
        println!("{problem}");
    }
    println!("{} problems", problems.len());
    Ok(ExitCode::from(u8::from(!problems.is_empty())))
}
