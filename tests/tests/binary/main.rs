//! The binary `asynclane` from the outside: exit codes, messages, answers, signals.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod families;
mod filter;
mod generate;
mod hub;
mod inspect;
// Reads what Linux tells of a process.
#[cfg(target_os = "linux")]
mod malformed;
mod readme;
mod refusals;
mod serve;
mod supervisor;
mod telemetry;
mod wedlm;

use demo::problems::{EXAMPLES, Problem, Task};

/// The word sum that pages and documentation offer to try.
fn sum() -> Problem {
    let (task, prompt) = EXAMPLES[0];
    assert_eq!(task, Task::Sums);
    Problem::from_prompt(prompt).expect("examples are problems")
}

/// An empty folder of this test.
fn folder(test: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}
