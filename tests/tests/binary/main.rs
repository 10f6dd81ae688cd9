//! The binaries as processes: exit codes, messages, answers, signals.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// Reads `/proc`.
#[cfg(target_os = "linux")]
mod attacks;
mod blocks;
mod calls;
mod canvas;
mod chat;
mod counts;
mod determinism;
mod documents;
mod engine_faults;
mod families;
mod filter;
mod generate;
mod gguf;
mod hub;
mod inspect;
// Reads `/proc`.
#[cfg(target_os = "linux")]
mod malformed;
mod readme;
mod refusals;
mod serve;
// Sets the limits of another process.
#[cfg(target_os = "linux")]
mod sockets;
mod supervisor;
mod telemetry;
mod wedlm;

use problems::Problem;

/// The word sum that documents and the playground offer to try.
fn sum() -> Problem {
    Problem::from_prompt(demo::EXAMPLES[0]).expect("examples are problems")
}

/// A new, empty folder for a test.
fn folder(test: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}
