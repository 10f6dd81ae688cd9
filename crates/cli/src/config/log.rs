//! The filter of the log.

use engine::did_you_mean;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::values::{Text, Worded};

/// The crates that write lines, by the names in directives.
const CRATES: [&str; 4] = ["cli", "engine", "model", "server"];
/// In front of these names in the targets of lines.
const PREFIX: &str = "asynclane_";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A log filter in the syntax of `RUST_LOG`, with the full names of this server's crates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl Worded for LogFilter {
    fn read(text: &str) -> Result<Self, String> {
        let directives: Result<Vec<String>, String> =
            text.split(',').map(|part| full(part.trim())).collect();
        let directives = directives?.join(",");
        match EnvFilter::try_new(&directives) {
            Ok(_) => Ok(Self(directives)),
            Err(error) => Err(format!("expected directives such as info,server=debug: {error}")),
        }
    }
}

impl Text<LogFilter> {
    /// The filter.
    pub fn filter(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

/// A directive with the full name of its target.
fn full(directive: &str) -> Result<String, String> {
    let end = directive.find(['=', '[']).unwrap_or(directive.len());
    let (target, rest) = directive.split_at(end);
    let is_level = rest.is_empty() && directive.parse::<LevelFilter>().is_ok();
    let name = target.split("::").next().unwrap_or_default();
    if is_level || (target.is_empty() && !rest.is_empty()) {
        return Ok(directive.to_owned());
    }
    if CRATES.contains(&name) {
        return Ok(format!("{PREFIX}{directive}"));
    }
    let is_own = name.strip_prefix(PREFIX).is_some_and(|name| CRATES.contains(&name));
    if !rest.is_empty() || directive.is_empty() || is_own {
        return Ok(directive.to_owned());
    }
    let hint = did_you_mean(directive, LEVELS.into_iter().chain(CRATES));
    let (levels, crates) = (LEVELS.join(", "), CRATES.join(", "));
    Err(format!("expected one of {levels}, {crates}, or TARGET=LEVEL, found {directive:?}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_level_or_a_crate_of_this_server() {
        let read = |text| LogFilter::read(text).map(|LogFilter(full)| full);
        for (text, full) in [
            ("info", "info"),
            ("WARN", "WARN"),
            ("3", "3"),
            ("", ""),
            ("warn, server=debug", "warn,asynclane_server=debug"),
            ("server::api=trace,off", "asynclane_server::api=trace,off"),
            ("engine", "asynclane_engine"),
            ("asynclane_model", "asynclane_model"),
            ("hyper=debug", "hyper=debug"),
            ("[request{route=a}]=debug,info", "[request{route=a}]=debug,info"),
        ] {
            assert_eq!(read(text), Ok(full.to_owned()), "{text}");
        }
        let expected = "expected one of off, error, warn, info, debug, trace, cli, engine, model, server, \
                        or TARGET=LEVEL, found";
        for (text, found) in [
            ("verbose", "\"verbose\""),
            ("info,debg", "\"debg\" (did you mean \"debug\"?)"),
            ("hyper", "\"hyper\""),
        ] {
            assert_eq!(read(text), Err(format!("{expected} {found}")), "{text}");
        }
        let refused = read("foo=bar=baz").unwrap_err();
        assert!(refused.starts_with("expected directives such as"), "{refused}");
    }
}
