//! What the tests across crates share: the demo model in an engine, behind a socket and in the
//! binary.

pub mod client;
pub mod crowd;
pub mod golden;
pub mod process;
pub mod random;
pub mod reply;
pub mod run;
pub mod scrape;
pub mod served;
