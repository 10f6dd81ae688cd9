//! Origins of values, and problems with their places.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};
use std::path::PathBuf;

use model::one_line;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The key was not set.
    Default,
    /// A file, line and column from 1.
    File(PathBuf, usize, usize),
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Set,
    /// A flag.
    Flag(String),
    /// An argument that is no flag, by its name in the help.
    Argument(&'static str),
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
            Self::Argument(name) => write!(formatter, "argument {name}"),
        }
    }
}

/// An invalid value, key or file.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Its place.
    pub origin: Origin,
    /// `section.name`; empty for a whole file.
    pub key: String,
    /// The expected value and the actual one.
    pub what: String,
    /// True if the problem is a missing file.
    pub missing: bool,
}

/// `config/a.toml:3:9 engine.page_size: expected at least 1, found 0`
impl Display for Problem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Self { origin, .. } = self;
        let [key, what] = [&self.key, &self.what].map(|text| one_line(text, MAX_SHOWN_CHARS));
        match origin {
            Origin::Default => write!(formatter, "{key}: {what}"),
            // Line 0 stands for the whole file.
            Origin::File(path, 0, _) => write!(formatter, "{}: {what}", path.display()),
            _ if key.is_empty() => write!(formatter, "{origin}: {what}"),
            _ => write!(formatter, "{origin} {key}: {what}"),
        }
    }
}

/// Maximum characters of a key or a value's problem.
const MAX_SHOWN_CHARS: usize = 400;

/// The origin by key; an absent key has its default.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// The origin of a key's value.
    pub fn get(&self, key: &str) -> &Origin {
        self.0.get(key).unwrap_or(&Origin::Default)
    }

    /// Sets the origin of a key's value.
    pub fn set(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_owned(), origin);
    }

    /// A problem of a key's value.
    pub fn problem(&self, key: &str, what: String) -> Problem {
        Problem { origin: self.get(key).clone(), key: key.to_owned(), what, missing: false }
    }
}
