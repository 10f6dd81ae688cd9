//! The text files of the repository, read once, and the violations of rules in them.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::syntax::Syntax;

/// A text file.
pub struct File {
    /// Path relative to the root, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
    /// The syntax of a Rust file, or the line and the reason why it does not parse.
    pub rust: Option<Result<Syntax, (usize, String)>>,
}

impl File {
    /// A file with this content.
    pub fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| Syntax::parse(text));
        Self { path: path.to_owned(), text: text.to_owned(), rust }
    }

    /// True if the file holds tests only: it lies in a folder `tests` or is named `tests.rs`. The sources
    /// of the laboratory, in `tests/lab`, count as shipped.
    pub fn is_test(&self) -> bool {
        let path = self.path.strip_prefix("tests/lab/").unwrap_or(&self.path);
        path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// The syntax of a Rust file that parses.
    pub fn syntax(&self) -> Option<&Syntax> {
        self.rust.as_ref()?.as_ref().ok()
    }

    /// The folder below `crates/` that holds the file.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// All text files of the repository except build outputs and version control.
pub struct Repository {
    /// Its root folder.
    pub root: PathBuf,
    /// The text files, sorted by path. Files that are not UTF-8 have an empty text.
    pub files: Vec<File>,
}

impl Repository {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub fn load(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string());
            for entry in entries? {
                let entry = entry?;
                let (path, name) = (entry.path(), entry.file_name());
                // Cargo marks a folder of build outputs with a tag, unless the folder existed before.
                let is_output = path.join("CACHEDIR.TAG").exists() || path == root.join("target");
                if is_output || [".git", "node_modules"].iter().any(|foreign| name == *foreign) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
                    let bytes = std::fs::read(&path).with_context(|| relative.clone())?;
                    files.push(File::new(&relative, &String::from_utf8(bytes).unwrap_or_default()));
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), files })
    }
}

/// One violation of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the rule.
    pub rule: &'static str,
    /// Path relative to the repository's root.
    pub path: String,
    /// Line, from 1; 0 means the whole file.
    pub line: usize,
    /// The expectation of the rule and the content of the file.
    pub message: String,
}

impl Problem {
    /// A problem with a whole file.
    pub fn of_file(rule: &'static str, path: &str, message: impl Into<String>) -> Self {
        Self::at(rule, path, 0, message)
    }

    /// A problem at a line, from 1.
    pub fn at(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { rule, path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {} [{}]", self.message, self.rule)
    }
}
