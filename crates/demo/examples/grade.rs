//! Grades JSON lines `{"prompt", "output"}` from standard input, one `{"task", "end", "strict"}`
//! line for each: the training script's evaluation reads them.

use std::io::{BufWriter, Write, stdin, stdout};
use std::process::ExitCode;

use asynclane_demo::grade::grade;
use asynclane_demo::problems::Problem;

fn main() -> ExitCode {
    let mut out = BufWriter::new(stdout().lock());
    for (index, line) in stdin().lines().enumerate() {
        let graded = line
            .map_err(|error| error.to_string())
            .and_then(|line| grade_line(&line));
        let written = graded.and_then(|object| {
            writeln!(out, "{object}").map_err(|error| format!("standard output: {error}"))
        });
        if let Err(message) = written {
            eprintln!("grade: line {}: {message}", index + 1);
            return ExitCode::FAILURE;
        }
    }
    match out.flush() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grade: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn grade_line(line: &str) -> Result<serde_json::Value, String> {
    let object: serde_json::Value =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |key: &str| {
        let value = object[key].as_str();
        value.ok_or_else(|| format!("{key}: expected a string, found {}", object[key]))
    };
    let (prompt, output) = (text("prompt")?, text("output")?);
    let problem = Problem::from_prompt(prompt)
        .ok_or_else(|| format!("prompt: expected one of the families, found {prompt:?}"))?;
    let grade = grade(&problem, output);
    Ok(serde_json::json!({ "task": problem.task, "end": grade.end, "strict": grade.strict }))
}
