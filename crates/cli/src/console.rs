//! Lines on standard output and standard error. A closed stream loses them and harms nothing, where
//! the macros of the standard library would panic. Standard output that fails otherwise, such as a full
//! disk, is the command's failure.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

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

/// Writes what is left for standard output; the first failure of it so far.
pub fn fault() -> Option<io::Error> {
    note(io::stdout().flush());
    FAULT.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Writes a line to standard error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Writes a line to standard output.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        $crate::console::note(writeln!(std::io::stdout(), $($text)*));
    }};
}
