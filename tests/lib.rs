//! What the tests across crates share: the demo model in an engine, run to the end.

pub mod golden;
pub mod run;
