//! The benchmark of decoders and the training of filters.
#![deny(missing_docs)]

#[expect(
    missing_docs,
    reason = "clap would print a comment on a group of arguments as the help of its command"
)]
pub mod args;
pub mod bench;
mod conversation;
pub mod dataset;
mod decide;
pub mod train_filter;

use std::process::ExitCode;

use args::{Cli, Command};

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    cli::start("asynclane-lab", Cli::read(), run)
}

fn run(arguments: Cli) -> anyhow::Result<()> {
    cli::config::warn_of_unknown_variables();
    match arguments.command {
        Command::Bench(args) => bench::run(&args),
        Command::TrainFilter(args) => train_filter::run(&args),
        Command::Problems(args) => dataset::problems(&args),
        Command::Grade => dataset::grade(),
        Command::Decide(args) => decide::run(&args),
    }
}
