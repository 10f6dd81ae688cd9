//! A configuration as TOML, with the origin of every value as a comment.

use std::fmt::Write;

use anyhow::Result;

use super::origin::Origins;
use super::schema::Config;
use crate::names::without_password;

/// The configuration as a valid configuration file. An API key from `--api-key` or its variable is
/// mentioned, not shown; so is a password of the collector's address.
pub fn text(config: &Config, origins: &Origins, has_key: bool) -> Result<String> {
    let mut config = config.clone();
    let shown = without_password(&config.telemetry.otlp_endpoint);
    let has_password = shown != config.telemetry.otlp_endpoint;
    config.telemetry.otlp_endpoint = shown;
    let mut text = String::new();
    let mut section = String::new();
    for line in toml::to_string(&config)?.lines() {
        let key = line.split_once(" = ").map(|(name, _)| name);
        match key {
            Some(name) => {
                let origin = origins.get(&format!("{section}.{name}"));
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
        if has_password && line == "[telemetry]" {
            writeln!(text, "# a password before the host of otlp_endpoint: ***")?;
        }
    }
    Ok(text)
}
