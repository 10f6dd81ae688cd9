//! The files of the repository, read once.

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
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            rust,
        }
    }

    /// Whether the file holds tests only: it lies in a folder `tests` or is named `tests.rs`.
    pub fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
    }

    /// The syntax of a Rust file that parses.
    pub fn syntax(&self) -> Option<&Syntax> {
        self.rust.as_ref()?.as_ref().ok()
    }

    /// The folder below `crates/` that holds the file.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// All text files of the repository except build outputs and version control.
pub struct Repository {
    /// Its root folder.
    pub root: PathBuf,
    /// The text files, sorted by path.
    pub files: Vec<File>,
    /// The paths of all files, images included.
    pub paths: Vec<String>,
}

impl Repository {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// If a folder or file cannot be read. Files that are not UTF-8 are left out.
    pub fn load(root: &Path) -> Result<Self> {
        let (mut files, mut paths) = (Vec::new(), Vec::new());
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
                    paths.push(relative);
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            root: root.to_owned(),
            files,
            paths,
        })
    }
}

/// Whether `.gitignore` names the path or version control owns it.
fn is_foreign(path: &str) -> bool {
    path == "target" || path == ".git" || path.ends_with(".log")
}
