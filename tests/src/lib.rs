//! Harness of the tests across crates: the goldens' checkpoint in an engine and behind a socket, the
//! binary as a process, an HTTP client.
#![deny(missing_docs)]

pub mod client;
pub mod crowd;
pub mod fuzz;
pub mod golden;
pub mod memory;
pub mod process;
pub mod random;
pub mod reply;
pub mod run;
pub mod scrape;
pub mod served;
pub mod soak;
pub mod words;
