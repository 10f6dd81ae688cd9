//! Lines from a terminal, with editing and a history of this chat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::exit;

/// Begins and ends a message of several lines.
const FENCE: &str = "\"\"\"";

/// The lines that the user types.
pub struct Lines(DefaultEditor);

impl Lines {
    /// Lines of the terminal.
    ///
    /// # Errors
    /// A terminal that cannot be used.
    pub fn new() -> Result<Self> {
        Ok(Self(DefaultEditor::new()?))
    }

    /// The next line, or the lines between two fences; `None` at the end of the input.
    ///
    /// # Errors
    /// A terminal that cannot be read.
    pub fn next(&mut self) -> Result<Option<String>> {
        let Some(first) = self.line(">>> ")? else {
            return Ok(None);
        };
        let Some(begun) = first.trim_start().strip_prefix(FENCE) else {
            return Ok(Some(first));
        };
        let mut message = begun.to_owned();
        while !message.trim_end().ends_with(FENCE) {
            let Some(line) = self.line("... ")? else {
                return Ok(None);
            };
            message.push('\n');
            message.push_str(&line);
        }
        message.truncate(message.trim_end().len() - FENCE.len());
        Ok(Some(message))
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self.0.readline(prompt) {
            Ok(line) => {
                self.0.add_history_entry(&line)?;
                Ok(Some(line))
            }
            // Ctrl-C empties the line.
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// True after Ctrl-C, until somebody sets it back; a second Ctrl-C before that ends the process.
///
/// # Errors
/// The operating system gives no thread or no handler.
pub fn interrupts() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if seen.swap(true, Ordering::Relaxed) {
                    exit::at_once(exit::INTERRUPTED);
                }
            }
        });
    })?;
    Ok(interrupted)
}
