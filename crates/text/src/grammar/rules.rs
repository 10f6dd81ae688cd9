//! The rules that one schema adds to a grammar's source.

use serde_json::{Map, Value};

use super::tools::line;

/// Maximum rules of one schema.
const MAX_RULES: usize = 5_000;

/// A format of calls with rules of its own.
#[derive(Debug)]
pub(super) struct Format {
    /// The name in errors.
    pub name: &'static str,
    /// Keywords that restrict no value.
    pub neutral: &'static [&'static str],
}

impl Format {
    /// Checks that all keywords are among `names` or neutral.
    pub fn check(&self, members: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
        let is_listed = |key: &str| names.contains(&key) || self.neutral.contains(&key);
        match members.keys().find(|key| !is_listed(key)) {
            None => Ok(()),
            Some(key) => Err(self.unsupported(&key.chars().take(40).collect::<String>())),
        }
    }

    /// The error of a schema with `what`.
    pub fn unsupported(&self, what: &str) -> String {
        format!("{what}: not supported in {}'s format of calls", self.name)
    }
}

/// The rules of one schema, whose names begin with a prefix.
pub(super) struct Rules<'a> {
    source: &'a mut String,
    prefix: &'a str,
    format: &'static Format,
    count: usize,
}

impl<'a> Rules<'a> {
    pub fn new(source: &'a mut String, prefix: &'a str, format: &'static Format) -> Self {
        Self { source, prefix, format, count: 0 }
    }

    /// A new name of a rule.
    pub fn name(&mut self) -> Result<String, String> {
        self.count += 1;
        if self.count > MAX_RULES {
            let format = self.format.name;
            return Err(format!(
                "expected at most {MAX_RULES} rules in {format}'s format, found more"
            ));
        }
        Ok(format!("{}_{}", self.prefix, self.count))
    }

    /// Adds a rule; returns its name.
    pub fn add(&mut self, body: &str) -> Result<String, String> {
        let name = self.name()?;
        self.line(&name, body);
        Ok(name)
    }

    /// Adds a rule of a given name, which may have attributes.
    pub fn line(&mut self, name: &str, body: &str) {
        line(self.source, name, body);
    }
}
