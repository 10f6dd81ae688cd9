//! Pieces of a grammar's source: texts, schemas, and the rules that one schema adds.

use std::fmt::Write as _;

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value};

use super::closed::close_objects;
use super::normal::{Omission, normalize};

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

/// Adds a rule.
pub(super) fn line(source: &mut String, name: &str, rule: &str) {
    // Writing to a string succeeds.
    let _ = writeln!(source, "{name}: {rule}");
}

/// `schema` as the compiler follows it; its objects are `closed`.
///
/// # Errors
/// The first keyword that it cannot follow.
pub(super) fn followed(schema: &Value, closed: bool) -> Result<Value, String> {
    let mut schema = schema.clone();
    let left_out = normalize(&mut schema);
    if let Some(Omission { path, reason }) = left_out.into_iter().next() {
        return Err(format!("{path} {reason}"));
    }
    if closed && schema.is_object() {
        close_objects(&mut schema);
    }
    Ok(schema)
}

/// `schema` with the settings of the compiler.
pub(super) fn json_schema(mut schema: Value) -> Value {
    let options = JsonCompileOptions {
        item_separator: ", ?".to_owned(),
        key_separator: ": ?".to_owned(),
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    schema
}

/// A rule with the JSON of `schema`, whose objects are closed.
pub(super) fn inline(schema: &Value) -> String {
    let mut schema = schema.clone();
    close_objects(&mut schema);
    format!("%json {}", json_schema(schema))
}

/// `text` as a string literal of a Lark grammar: JSON, with U+007F escaped, which JSON does not
/// escape.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
