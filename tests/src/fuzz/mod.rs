//! Fuzz targets: functions from bytes to an [`Outcome`] that panic where an oracle is violated, one
//! file each. [`drive`] runs them over mutated inputs of their corpus.

use std::path::PathBuf;

pub mod config;
pub mod drive;
pub mod framing;
pub mod gguf;
pub mod grammar;
pub mod index;
pub mod mutate;
pub mod request;
pub mod template;

/// The outcome of an input whose oracles hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is valid.
    Accepted,
    /// It was refused with an error that names the reason.
    Refused,
}

impl Outcome {
    /// The outcome of a result; the error must be one line of at most [`ERROR_CHARS`] characters.
    pub fn of<T, E: std::fmt::Display>(result: Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Accepted,
            Err(error) => {
                check_error(&error.to_string());
                Self::Refused
            }
        }
    }
}

/// Most characters of an error about one fault.
pub const ERROR_CHARS: usize = 1_000;

/// Checks that an error has a text, in one line that is not too long.
pub fn check_error(error: &str) {
    let chars = error.chars().count();
    assert!((1..=ERROR_CHARS).contains(&chars), "{chars} characters");
    assert!(!error.contains('\n'), "more than one line: {error:?}");
}

/// A temporary file with `data`, another one for each input, because a file that was mapped never changes.
/// It is removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, data: &[u8]) -> Self {
        let name = format!("asynclane-fuzz-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, data).expect("the folder of temporary files is writable");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The file may be gone.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its corpus.
    pub name: &'static str,
    /// Runs one input. Panics if an oracle is violated.
    pub run: fn(&[u8]) -> Outcome,
    /// Parts of hostile inputs that its corpus lacks, separated by `¦`.
    pub words: &'static str,
    /// Resident memory that one input may take, in MiB.
    pub memory: u64,
    /// The least share of mutated inputs that are valid, in 1/1000: below it the mutations test
    /// little more than the parser's first lines.
    pub accepted: usize,
}
