//! A configuration as TOML, with the origin of every value as a comment.

use std::fmt::Write;

use anyhow::Result;

use super::origin::Origins;
use super::schema::Config;

/// The configuration as a valid configuration file. An API key from `--api-key` or its variable is
/// mentioned, not shown.
pub fn text(config: &Config, origins: &Origins, has_key: bool) -> Result<String> {
    let mut text = String::new();
    let mut section = String::new();
    for line in toml::to_string(config)?.lines() {
        let key = line.split_once(" = ").map(|(name, _)| name);
        match key {
            Some(name) => {
                let origin = origins.of(&format!("{section}.{name}"));
                writeln!(text, "{line} # {origin}")?;
            }
            None => {
                section = line.trim_matches(['[', ']']).to_owned();
                writeln!(text, "{line}")?;
            }
        }
        if has_key && line == "[server]" {
            writeln!(text, "# an API key: *** (--api-key or ASYNCLANE_API_KEY)")?;
        }
    }
    Ok(text)
}
