//! `asynclane bench`: decoders side by side on held-out demo problems.

mod compare;
mod decoders;
mod infill;
mod overall;
mod plot;
pub mod report;
mod run;
mod table;

use anyhow::Result;
use demo::problems::{self, Problem, Split, Task};
use engine::decoding::Decoding;

use crate::args::BenchArgs;
use crate::config::Config;
use crate::exit;
use crate::load;

use decoders::Listed;
use report::Report;
pub use run::{Load, Runner};

/// Runs every decoder over every problem, in rounds, or reads an earlier result; prints the
/// tables and draws the plot.
///
/// # Errors
/// Unknown names, a model that does not load, a failed step, a file that cannot be read or
/// written.
pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(path) = &args.from {
        return show(args, &Report::load(path)?);
    }
    let config = Config::resolve(&args.model, None)?;
    let tasks = tasks(&args.task)?;
    let listed = decoders::parse(&args.decoders)?;
    if args.problems == 0 {
        let message = "--problems: expected at least 1, found 0";
        return Err(exit::failure(exit::USAGE, message));
    }
    if args.infill && tasks.len() > 1 {
        let message = format!("--infill: expected one --task, found {}", args.task);
        return Err(exit::failure(exit::USAGE, message));
    }
    let load = Load {
        max_tokens: args.max_tokens,
        concurrency: args.concurrency,
    };
    let mut runner = Runner::new(load::load(&config)?, &config, load)?;
    let problems = problems::generate(tasks[0], Split::Eval, args.seed, args.problems);
    let decoders = admitted(listed, &runner, &problems[0])?;
    if args.infill {
        let report = infill::run(args, &mut runner, &decoders, &problems)?;
        print!("{}", report.table());
        return args
            .json
            .as_ref()
            .map_or(Ok(()), |path| report::write(&report, path));
    }
    show(args, &compare::run(args, &mut runner, &tasks, &decoders)?)
}

/// Prints the tables and writes the files that were asked for.
fn show(args: &BenchArgs, report: &Report) -> Result<()> {
    print!("{}", table::text(report));
    if let Some(path) = &args.json {
        report.save(path)?;
    }
    if let Some(path) = &args.plot {
        report::write_text(&plot::svg(report), path)?;
    }
    Ok(())
}

/// One or more families, separated by commas or blanks; `all` is every one.
pub fn tasks(text: &str) -> Result<Vec<Task>> {
    let mut tasks: Vec<Task> = Vec::new();
    for name in text.split([',', ' ', ';']).filter(|name| !name.is_empty()) {
        let named = match name {
            decoders::ALL => Task::ALL.to_vec(),
            _ => vec![
                name.parse()
                    .map_err(|e| exit::failure(exit::USAGE, format!("{e}")))?,
            ],
        };
        for task in named {
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
    }
    if tasks.is_empty() {
        return Err(exit::failure(exit::USAGE, "--task names no family"));
    }
    Ok(tasks)
}

/// The decoders that the loaded model can run; one that was named rather than listed by `all` is
/// refused, not left out.
fn admitted(
    listed: Vec<Listed>,
    runner: &Runner,
    problem: &Problem,
) -> Result<Vec<(String, Decoding)>> {
    let mut decoders = Vec::new();
    for Listed {
        name,
        decoding,
        optional,
    } in listed
    {
        match runner.admits(problem, &decoding) {
            Ok(()) => decoders.push((name, decoding)),
            Err(why) if optional => eprintln!("left out: {name}: {why}"),
            Err(why) => return Err(exit::failure(exit::USAGE, format!("{name}: {why}"))),
        }
    }
    if decoders.is_empty() {
        return Err(exit::failure(
            exit::USAGE,
            "the model runs none of --decoders",
        ));
    }
    Ok(decoders)
}

/// A user's text as a chat's first message.
fn prompt_ids(content: &str, tokenizer: &text::Tokenizer) -> Result<Vec<u32>> {
    let message = text::Message {
        role: "user".to_owned(),
        content: content.to_owned(),
    };
    let text = tokenizer.chat_template()?.render(&[message], true)?;
    Ok(tokenizer.encode(&text, false)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_named_one_by_one_or_all_at_once() {
        let all = Task::ALL.to_vec();
        assert_eq!(tasks("all").unwrap(), all);
        assert_eq!(tasks("sums,snippets,lists").unwrap(), all);
        assert_eq!(tasks("lists, sums").unwrap(), [Task::Lists, Task::Sums]);
        assert_eq!(tasks("lists,all").unwrap()[..2], [Task::Lists, Task::Sums]);
        assert!(tasks("poems").is_err() && tasks("").is_err());
    }
}
