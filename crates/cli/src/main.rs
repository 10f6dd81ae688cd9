//! The binary `asynclane`.

use std::process::ExitCode;

fn main() -> ExitCode {
    asynclane_cli::main()
}
