//! `asynclane bench`: decoders side by side on held-out demo problems.

mod report;
mod run;

use anyhow::Result;
use demo::problems::{self, Problem, Split, Task};
use engine::decoding::{Decoding, DecodingSpec};

use crate::args::BenchArgs;
use crate::config::Config;
use crate::exit;
use crate::load;

use report::{Entry, Report};
use run::{Runner, Tally};

/// Runs every decoder over every problem, in rounds, and prints the table.
///
/// # Errors
/// Unknown names, a model that does not load, a failed step.
pub fn run(args: &BenchArgs) -> Result<()> {
    let config = Config::resolve(&args.model, None)?;
    let task: Task = args
        .task
        .parse()
        .map_err(|e| exit::failure(exit::USAGE, format!("{e}")))?;
    let decoders = decoders(&args.decoders)?;
    let problems = problems::generate(task, Split::Eval, args.seed, args.problems);
    let mut runner = Runner::new(load::load(&config)?, &config, args)?;
    let rounds = args.rounds.clamp(1, problems.len().max(1));
    let size = problems.len().div_ceil(rounds).max(1);
    // The first forward touches every page of the weights; nobody should pay for that.
    runner.run(&decoders[0].1, &problems[..problems.len().min(1)])?;
    let mut tallies: Vec<Vec<Tally>> = vec![Vec::new(); decoders.len()];
    for (round, part) in problems.chunks(size).enumerate() {
        for at in 0..decoders.len() {
            // Every round begins with another decoder, so that a drift of the machine's speed
            // favours none.
            let which = (at + round) % decoders.len();
            let (name, decoding) = &decoders[which];
            eprintln!("round {} of {rounds}: {name}", round + 1);
            tallies[which].push(runner.run(decoding, part)?);
        }
    }
    let report = build(args, task, &decoders, &tallies);
    print!("{}", report.table());
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    Ok(())
}

fn decoders(text: &str) -> Result<Vec<(String, Decoding)>> {
    let mut decoders = Vec::new();
    for name in text.split([' ', ';']).filter(|name| !name.is_empty()) {
        let decoding = DecodingSpec::parse(name).and_then(|spec| spec.resolve());
        let decoding =
            decoding.map_err(|e| exit::failure(exit::USAGE, format!("--decoders {name}: {e}")))?;
        decoders.push((name.to_owned(), decoding));
    }
    if decoders.is_empty() {
        return Err(exit::failure(exit::USAGE, "--decoders names no decoder"));
    }
    Ok(decoders)
}

fn build(
    args: &BenchArgs,
    task: Task,
    decoders: &[(String, Decoding)],
    tallies: &[Vec<Tally>],
) -> Report {
    let baseline = &tallies[0];
    let entry = |(index, (name, decoding)): (usize, &(String, Decoding))| {
        Entry::new(name, &decoding.label, &tallies[index], baseline)
    };
    Report {
        command: report::command(),
        machine: report::machine(),
        task: task.name().to_owned(),
        problems: args.problems,
        max_tokens: args.max_tokens,
        concurrency: args.concurrency,
        decoders: decoders.iter().enumerate().map(entry).collect(),
    }
}

/// The prompts of a problem as the demo model expects them.
fn prompt_ids(problem: &Problem, tokenizer: &text::Tokenizer) -> Result<Vec<u32>> {
    let content = problem.prompt.clone();
    let message = text::Message {
        role: "user".to_owned(),
        content,
    };
    let text = tokenizer.chat_template()?.render(&[message], true)?;
    Ok(tokenizer.encode(&text, false)?)
}
