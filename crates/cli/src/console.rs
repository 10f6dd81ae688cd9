//! Lines on standard output and standard error. A closed stream loses them and harms nothing, where
//! the macros of the standard library would panic. Standard output that fails otherwise, such as a full
//! disk, is the command's failure.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The first failure of standard output.
static FAULT: Mutex<Option<io::Error>> = Mutex::new(None);

/// Notes how writing to standard output went. A reader that has left has what it wanted.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let mut fault = FAULT.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(error);
    }
}

/// Writes the buffered rest to standard output; returns the first failure of any write.
pub fn fault() -> Option<io::Error> {
    note(io::stdout().flush());
    FAULT.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// True if lines on standard error are JSON objects.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes every line on standard error a JSON object, as the log's lines are.
pub fn say_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Writes a line to standard error, at once: other programs read the server's address from one.
pub fn say(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(line(&text.to_string()).as_bytes());
}

/// A line of standard error, as text or as a JSON object, with its end.
pub fn line(text: &str) -> String {
    let mut line = match JSON.load(Ordering::Relaxed) {
        true => object(text),
        false => text.to_owned(),
    };
    line.push('\n');
    line
}

/// A line of the log. What the text begins with tells its level.
fn object(text: &str) -> String {
    let levels = [("warning: ", "WARN"), ("asynclane: ", "ERROR")];
    let found = levels.iter().find_map(|(lead, level)| Some((*level, text.strip_prefix(lead)?)));
    let (level, message) = found.unwrap_or(("INFO", text));
    let mut timestamp = String::new();
    // Writing to a text does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    json!({"timestamp": timestamp, "level": level, "message": message, "target": "asynclane_cli"})
        .to_string()
}

/// Writes a line to standard error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::console::say(format_args!($($text)*))
    };
}

/// Writes a line to standard output.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        $crate::console::note(writeln!(std::io::stdout(), $($text)*));
    }};
}
