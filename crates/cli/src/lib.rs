//! The commands of the binary `asynclane`, and the loading of models and configurations that the
//! laboratory shares with it.
#![deny(missing_docs)]
#![warn(clippy::print_stderr, clippy::print_stdout)]

#[macro_use]
mod console;

mod answer;
#[expect(
    missing_docs,
    reason = "clap would print a comment on a group of arguments as the help of its command"
)]
pub mod args;
mod capacity;
mod chat;
pub mod config;
mod determinism;
pub mod device;
pub mod exit;
mod files;
mod fit;
mod generate;
pub mod hub;
mod inspect;
pub mod kv;
pub mod load;
mod memory;
mod models;
mod names;
mod progress;
mod published;
mod selftest;
pub mod serve;
mod session;
mod shelf;
mod signals;
mod supervisor;
mod telemetry;
#[cfg(test)]
mod tests;
mod trial;
mod watchdog;

use std::io::Write;
use std::process::ExitCode;

use args::{Cli, Command};
use clap::CommandFactory;

/// Runs `program` with its arguments, or prints what is wrong with them; its exit code.
pub fn start<C>(
    program: &str,
    arguments: Result<C, clap::Error>,
    run: impl FnOnce(C) -> anyhow::Result<()>,
) -> ExitCode {
    match arguments {
        Ok(arguments) => exit::of_result(program, run(arguments)),
        Err(error) => exit::of_arguments(&error),
    }
}

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    start("asynclane", Cli::read(), run)
}

fn run(cli: Cli) -> anyhow::Result<()> {
    // `serve` warns once it knows the format of the log.
    if !matches!(cli.command, Command::Serve(_)) {
        config::warn_of_unknown_variables();
    }
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Run(args) => chat::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Pull(args) => models::pull(&args),
        Command::CheckConfig(args) => config::check(&args),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "asynclane", &mut script);
            console::note(std::io::stdout().write_all(&script));
            Ok(())
        }
    }
}
