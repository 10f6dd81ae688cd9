//! `asynclane-lab problems` and `asynclane-lab grade`: problems and grades as JSON lines, for the
//! training scripts.

use std::io::{BufWriter, Write, stdin, stdout};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::args::ProblemsArgs;
use problems::{Problem, drills, generate};

/// Prints problems, or drills where no family is named.
///
/// # Errors
/// Standard output cannot be written.
pub fn problems(args: &ProblemsArgs) -> Result<()> {
    let lines: Vec<Value> = match args.task {
        Some(task) => {
            let problems = generate(task, args.split, args.seed, args.count);
            problems.iter().map(|problem| json!(problem)).collect()
        }
        None => {
            let drills = drills(args.seed, args.count);
            let line = |prompt: &str, answer: &str| json!({"task": "drills", "prompt": prompt, "answer": answer});
            drills.iter().map(|drill| line(&drill.prompt, &drill.answer)).collect()
        }
    };
    let mut out = BufWriter::new(stdout().lock());
    for line in lines {
        writeln!(out, "{line}").context("standard output")?;
    }
    out.flush().context("standard output")
}

/// Grades the outputs on standard input.
///
/// # Errors
/// A line that is not `{"prompt", "output"}` with the prompt of a problem; standard output cannot be
/// written.
pub fn grade() -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    for (number, line) in (1..).zip(stdin().lines()) {
        let graded = graded(&line?).with_context(|| format!("line {number}"))?;
        writeln!(out, "{graded}").context("standard output")?;
    }
    out.flush().context("standard output")
}

fn graded(line: &str) -> Result<Value> {
    let object: Value = serde_json::from_str(line)?;
    let text = |key: &str| {
        let value = object[key].as_str();
        value.ok_or_else(|| anyhow!("{key}: expected a string, found {}", object[key]))
    };
    let (prompt, output) = (text("prompt")?, text("output")?);
    let problem = Problem::from_prompt(prompt)
        .ok_or_else(|| anyhow!("prompt: expected a problem of a family, found {prompt:?}"))?;
    let grade = problems::grade(&problem, output).context("the grader")?;
    Ok(json!({"task": problem.task, "end": grade.end, "strict": grade.strict}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_graded_or_named() {
        let prompt = "Reverse the list coins, eggs, books, pens.";
        let line = json!({"prompt": prompt, "output": "?"}).to_string();
        let expected = json!({"task": "lists", "end": false, "strict": false});
        assert_eq!(graded(&line).unwrap(), expected);
        let message = |line: &str| graded(line).unwrap_err().to_string();
        assert!(message(r#"{"prompt": 3}"#).contains("prompt: expected a string, found 3"));
        assert!(message(r#"{"prompt": "Hi", "output": ""}"#).contains("found \"Hi\""));
    }
}
