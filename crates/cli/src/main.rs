//! The binary `asynclane`.

mod args;
mod bench;
mod config;
mod device;
mod exit;
mod generate;
mod hub;
mod inspect;
mod load;
mod memory;
mod progress;
mod serve;
mod supervisor;
#[cfg(test)]
mod tests;
mod train_filter;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // --help and --version are answers, not mistakes.
            return if error.use_stderr() {
                exit::USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::TrainFilter(args) => train_filter::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::CheckConfig(args) => config::check(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("asynclane: {error:#}");
            exit::code(&error)
        }
    }
}
