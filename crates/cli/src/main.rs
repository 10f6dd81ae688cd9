//! The binary `asynclane`.

mod args;
mod bench;
mod capacity;
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
mod telemetry;
#[cfg(test)]
mod tests;
mod train_filter;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::CommandFactory;

fn main() -> ExitCode {
    let cli = match Cli::read() {
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
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    for name in config::unread(names.iter().map(String::as_str)) {
        eprintln!("warning: nothing reads the environment variable {name}");
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::TrainFilter(args) => train_filter::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::CheckConfig(args) => config::check(&args),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "asynclane", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("asynclane: {error:#}");
            exit::code(&error)
        }
    }
}
