//! Prints problems as JSON lines, `{"task", "prompt", "answer"}`: the training script reads them.
//!
//! `problems --task sums|snippets|lists|drills --seed N --count N [--split train|eval]`

use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

use asynclane_demo::problems::{Split, Task, drills, generate};

struct Arguments {
    /// `None` for drills, which belong to no family.
    task: Option<Task>,
    seed: u64,
    count: usize,
    split: Split,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|arguments| print(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("problems: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        task: None,
        seed: 0,
        count: 10,
        split: Split::Train,
    };
    while let Some(flag) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{flag}: expected a value, found none"))?;
        let wrong = |error: &dyn std::fmt::Display| format!("{flag} {value}: {error}");
        match flag.as_str() {
            "--task" if value == "drills" => arguments.task = None,
            "--task" => arguments.task = Some(value.parse().map_err(|error| wrong(&error))?),
            "--seed" => arguments.seed = value.parse().map_err(|error| wrong(&error))?,
            "--count" => arguments.count = value.parse().map_err(|error| wrong(&error))?,
            "--split" => arguments.split = value.parse().map_err(|error| wrong(&error))?,
            _ => {
                return Err(format!(
                    "expected --task, --seed, --count or --split, found {flag}"
                ));
            }
        }
    }
    Ok(arguments)
}

fn print(arguments: &Arguments) -> Result<(), String> {
    let Arguments {
        task,
        seed,
        count,
        split,
    } = *arguments;
    let mut out = BufWriter::new(stdout().lock());
    let mut line = |object: serde_json::Value| writeln!(out, "{object}");
    let written = match task {
        Some(task) => generate(task, split, seed, count)
            .iter()
            .try_for_each(|problem| line(serde_json::json!(problem))),
        None => drills(seed, count).iter().try_for_each(|drill| {
            let (prompt, answer) = (&drill.prompt, &drill.answer);
            line(serde_json::json!({ "task": "drills", "prompt": prompt, "answer": answer }))
        }),
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| format!("standard output: {error}"))
}
