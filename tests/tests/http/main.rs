//! The real server over the goldens' checkpoint, through a socket.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budgets;
mod crowd;
mod freeing;
mod goldens;
mod sampling;
mod structured;
mod together;
mod tools;
