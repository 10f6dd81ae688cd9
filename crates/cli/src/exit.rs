//! Exit codes after sysexits.h: a supervisor learns whether a restart can help.

use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use model::LoadError;

use crate::args;
use crate::console;
use crate::names::escaped;

/// An exit code and its message.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

/// Answers that should be equal differ.
pub const DIFFERENT: u8 = 1;
/// Wrong arguments.
pub const USAGE: u8 = 64;
/// An invalid checkpoint.
pub const CHECKPOINT: u8 = 65;
/// A missing file.
pub const NO_INPUT: u8 = 66;
/// An unreachable server or device.
pub const UNAVAILABLE: u8 = 69;
/// The engine died or hangs.
pub const ENGINE: u8 = 70;
/// The device failed and is of no use to this process any more.
pub const DEVICE: u8 = 71;
/// Reading or writing failed.
pub const IO: u8 = 74;
/// An invalid configuration.
pub const CONFIG: u8 = 78;
/// A second SIGTERM or SIGINT.
pub const INTERRUPTED: u8 = 130;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Time for what libraries have registered to run at the exit.
const HANDLER_TIME: Duration = Duration::from_secs(2);

/// Ends the process with `code`, whatever its threads do.
pub fn at_once(code: u8) -> ! {
    bound();
    std::process::exit(code.into())
}

/// Kills the process if it does not end by itself: a library's handler may wait for a stuck thread.
pub fn bound() {
    let thread = std::thread::Builder::new().name("exit".to_owned());
    // Without a thread, the handlers may take their time.
    let _ = thread.spawn(|| {
        std::thread::sleep(HANDLER_TIME);
        kill();
    });
}

/// Ends the process without handlers.
#[cfg(unix)]
fn kill() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Ends the process without handlers.
#[cfg(not(unix))]
fn kill() {
    std::process::abort();
}

/// An error that ends the process with `code`.
pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    Failure { code, message: message.into() }.into()
}

/// The error of a model that cannot be loaded.
pub fn refused(error: LoadError) -> anyhow::Error {
    failure(CHECKPOINT, error.to_string())
}

/// The exit code of an error of [`failure`].
pub fn number(error: &anyhow::Error) -> Option<u8> {
    error.downcast_ref::<Failure>().map(|failure| failure.code)
}

/// The exit code of `error`: its own, the code of an I/O error, or 1.
pub fn code(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Failure>() {
        Some(failure) => failure.code.into(),
        None if error.is::<std::io::Error>() => IO.into(),
        None => ExitCode::FAILURE,
    }
}

/// Prints what clap reports of the arguments and gives its exit code; `--help` and `--version` are
/// answers, not errors.
pub(crate) fn of_arguments(error: &clap::Error) -> ExitCode {
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(advice) = args::advice(option, std::env::args_os())
    {
        say!("error: {option} is an option of another server: {advice}");
        return USAGE.into();
    }
    let printed = error.print();
    if error.use_stderr() {
        // Nothing is left to do where standard error is closed.
        return USAGE.into();
    }
    console::note(printed);
    match console::fault() {
        None => ExitCode::SUCCESS,
        Some(_) => IO.into(),
    }
}

/// Prints the error of `program`'s command, if any, and gives the exit code.
pub(crate) fn of_result(program: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => match console::fault() {
            None => ExitCode::SUCCESS,
            Some(error) => {
                say!("{program}: standard output: {error}");
                IO.into()
            }
        },
        Err(error) => {
            // Also if nobody reads the line.
            bound();
            say!("{program}: {}", escaped(&format!("{error:#}"), "\n\t"));
            code(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_list_every_code() {
        let page = include_str!("../../../docs/operating.md");
        let (_, section) = page.split_once("## Exit status").expect("the section");
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let listed: Vec<u8> = rows
            .map(|row| row.split('|').nth(1).unwrap_or_default().trim())
            .map(|code| code.parse().expect("a number"))
            .collect();
        let codes = [
            0,
            DIFFERENT,
            USAGE,
            CHECKPOINT,
            NO_INPUT,
            UNAVAILABLE,
            ENGINE,
            DEVICE,
            IO,
            CONFIG,
            INTERRUPTED,
        ];
        assert_eq!(listed, codes);
    }
}
