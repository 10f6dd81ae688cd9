//! Where a value comes from, and what is said of one that cannot be.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A file, line and column from 1.
    File(PathBuf, usize, usize),
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Set,
    /// A flag.
    Flag(String),
}

impl Display for Origin {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path, line, column) => {
                write!(formatter, "{}:{line}:{column}", path.display())
            }
            Self::Environment(name) => write!(formatter, "environment {name}"),
            Self::Set => formatter.write_str("--set"),
            Self::Flag(name) => formatter.write_str(name),
        }
    }
}

/// Something that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where it stands.
    pub origin: Origin,
    /// `section.name`; empty if it is the whole file.
    pub key: String,
    /// What was expected and what was found.
    pub what: String,
    /// A file that is not there.
    pub missing: bool,
}

/// `config/a.toml:3:9 engine.row_budget: expected at least 1, found 0`
impl Display for Problem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Self {
            origin, key, what, ..
        } = self;
        match origin {
            Origin::Default => write!(formatter, "{key}: {what}"),
            // Line 0 is no place in the file.
            Origin::File(path, 0, _) => write!(formatter, "{}: {what}", path.display()),
            _ if key.is_empty() => write!(formatter, "{origin}: {what}"),
            _ => write!(formatter, "{origin} {key}: {what}"),
        }
    }
}

/// By key, where its value comes from; what is absent has its default.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Of one key.
    pub fn of(&self, key: &str) -> &Origin {
        self.0.get(key).unwrap_or(&Origin::Default)
    }

    /// The key's value comes from there now.
    pub fn set(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_owned(), origin);
    }

    /// Something wrong with a key's value.
    pub fn problem(&self, key: &str, what: String) -> Problem {
        Problem {
            origin: self.of(key).clone(),
            key: key.to_owned(),
            what,
            missing: false,
        }
    }
}
