//! The commands of the binary `asynclane`, and the loading of models and configurations that the
//! laboratory shares with it.

pub mod args;
mod capacity;
pub mod config;
pub mod device;
pub mod exit;
mod generate;
pub mod hub;
mod inspect;
mod kv;
pub mod load;
mod memory;
mod progress;
pub mod serve;
mod supervisor;
mod telemetry;
#[cfg(test)]
mod tests;

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
            clap_complete::generate(shell, &mut command, "asynclane", &mut std::io::stdout());
            Ok(())
        }
    };
    exit::of_result("asynclane", result)
}
