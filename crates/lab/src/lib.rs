//! The laboratory: the benchmark of decoders, the problems of the demo models with their grader, and
//! the training of filters. The served binary never links it.

pub mod args;
pub mod bench;
pub mod dataset;
pub mod grade;
pub mod problems;
pub mod python;
mod rng;
pub mod train_filter;

use std::process::ExitCode;

use args::{Cli, Command};
use cli::{config, exit};

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return exit::of_arguments(&error),
    };
    config::warn_of_unknown_variables();
    let result = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::TrainFilter(args) => train_filter::run(&args),
        Command::Problems(args) => dataset::problems(&args),
        Command::Grade => dataset::grade(),
    };
    exit::of_result("asynclane-lab", result)
}
