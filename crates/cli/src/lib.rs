//! The commands of the binary `asynclane`, and the loading of models and configurations that the
//! laboratory shares with it.
#![warn(clippy::print_stderr, clippy::print_stdout)]

#[macro_use]
mod console;

pub mod args;
mod capacity;
pub mod config;
pub mod device;
pub mod exit;
mod files;
mod generate;
pub mod hub;
mod inspect;
mod kv;
pub mod load;
mod memory;
mod progress;
pub mod serve;
mod signals;
mod supervisor;
mod telemetry;
#[cfg(test)]
mod tests;
mod watchdog;

use std::io::Write;
use std::process::ExitCode;

use args::{Cli, Command};
use clap::CommandFactory;

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return exit::of_arguments(&error),
    };
    config::warn_of_unknown_variables();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::CheckConfig(args) => config::check(&args),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "asynclane", &mut script);
            let _ = std::io::stdout().write_all(&script);
            Ok(())
        }
    };
    exit::of_result("asynclane", result)
}
