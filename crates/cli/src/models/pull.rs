//! `asynclane pull`: a download without a start.

use anyhow::Result;
use demo::checkpoint::Embedded;

use crate::args::PullArgs;
use crate::config::Config;
use crate::exit;
use crate::fit;

/// Downloads a model that fits, and prints its folder or GGUF file.
///
/// # Errors
/// As [`fit::fetch`]; an embedded model, a name of nothing.
pub fn run(args: &PullArgs) -> Result<()> {
    let config = Config::resolve(&args.model.named(Some(&args.name)), None)?;
    let path = &config.model.path;
    if Embedded::named(path).is_some() {
        let message = format!("{path}: nothing to download, the model is in this binary");
        return Err(exit::failure(exit::USAGE, message));
    }
    let place = fit::fetch(&config)?;
    // A path of nothing is refused as a start refuses it.
    crate::load::checkpoint(&place)?;
    tell!("{place}");
    Ok(())
}
