//! Runs the body of a Python function that a model wrote: `python3 -I`, every body in a child with
//! limits of time and memory.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

const PROGRAM: &str = include_str!("python.py");
/// Longest body that is run, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;

static INTERPRETER: Mutex<Option<Interpreter>> = Mutex::new(None);

/// A running interpreter; it ends when its input does.
struct Interpreter {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// True if the body is a function of `parameters` that returns the expected value of every call, by
/// Python's equality. `calls` are pairs of a list of arguments and the expected value.
///
/// # Errors
/// `python3` is missing or has ended.
pub(crate) fn returns(
    parameters: &[&str],
    body: &str,
    calls: &[(Value, Value)],
) -> io::Result<bool> {
    if body.len() > MAX_BODY_BYTES {
        return Ok(false);
    }
    let job = json!({"parameters": parameters, "body": body, "calls": calls});
    let mut running = INTERPRETER.lock().unwrap_or_else(PoisonError::into_inner);
    let interpreter = match running.as_mut() {
        Some(interpreter) => interpreter,
        None => running.insert(Interpreter::start()?),
    };
    let answer = interpreter.answer(&job);
    if answer.is_err() {
        *running = None;
    }
    answer
}

impl Interpreter {
    fn start() -> io::Result<Self> {
        let mut process = Command::new("python3")
            .args(["-I", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("python3: {error}")))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let pipes = input.zip(output).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { _process: process, input: pipes.0, output: BufReader::new(pipes.1) })
    }

    fn answer(&mut self, job: &Value) -> io::Result<bool> {
        writeln!(self.input, "{job}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(io::Error::other("python3 ended")),
        }
    }
}
