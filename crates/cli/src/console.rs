//! Lines on standard output and standard error. A closed stream loses them and harms nothing, where
//! the macros of the standard library would panic.

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
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
