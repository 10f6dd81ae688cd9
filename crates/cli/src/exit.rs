//! Exit codes, after sysexits.h, so that a supervisor knows whether a restart can help.

use std::process::ExitCode;

/// A code and the message that goes with it.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

/// Wrong arguments.
pub const USAGE: u8 = 64;
/// A checkpoint that cannot be used.
pub const CHECKPOINT: u8 = 65;
/// A file that is not there.
pub const NO_INPUT: u8 = 66;
/// A server or device that cannot be reached.
pub const UNAVAILABLE: u8 = 69;
/// The engine died.
pub const ENGINE: u8 = 70;
/// Reading or writing failed.
pub const IO: u8 = 74;
/// A configuration that cannot be used.
pub const CONFIG: u8 = 78;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error that ends the process with `code`.
pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    Failure {
        code,
        message: message.into(),
    }
    .into()
}

/// The exit code of `error`: its own, or that of an unexpected failure.
pub fn code(error: &anyhow::Error) -> ExitCode {
    error
        .downcast_ref::<Failure>()
        .map_or(ExitCode::FAILURE, |failure| failure.code.into())
}
