//! The binary `asynclane-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    asynclane_lab::main()
}
