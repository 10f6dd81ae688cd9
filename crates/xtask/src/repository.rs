//! The files of the repository, read once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source::Source;

/// A text file.
#[derive(Debug)]
pub struct File {
    /// Path relative to the root, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
    /// The scanned content of a Rust file.
    pub rust: Option<Source>,
}

impl File {
    /// A file that is not on disk.
    pub fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| Source::scan(text));
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            rust,
        }
    }

    /// Whether the file holds tests only: below a folder `tests`, or named `tests.rs`.
    pub fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
    }

    /// The folder below `crates/` the file lies in.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// All text files of the repository, without build outputs and version control.
#[derive(Debug)]
pub struct Repository {
    /// Where it lies.
    pub root: PathBuf,
    /// Sorted by path.
    pub files: Vec<File>,
}

impl Repository {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// If a folder or file cannot be read. Files that are not UTF-8 are left out.
    pub fn load(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string());
            for entry in entries? {
                let path = entry?.path();
                let relative = path
                    .strip_prefix(root)?
                    .to_string_lossy()
                    .replace('\\', "/");
                if is_foreign(&relative) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    let bytes = std::fs::read(&path).with_context(|| relative.clone())?;
                    if let Ok(text) = String::from_utf8(bytes) {
                        files.push(File::new(&relative, &text));
                    }
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            root: root.to_owned(),
            files,
        })
    }

    /// The Rust files with their scanned content.
    pub fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files
            .iter()
            .filter_map(|file| Some((file, file.rust.as_ref()?)))
    }
}

/// Build outputs, version control and logs, as `.gitignore` has them.
fn is_foreign(path: &str) -> bool {
    path == "target" || path == ".git" || path.ends_with(".log")
}
