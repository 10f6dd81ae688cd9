//! The binary `asynclane`.

use std::process::ExitCode;

/// Gives freed memory back to the system, which glibc's allocator does not after a storm of requests.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    asynclane_cli::main()
}
