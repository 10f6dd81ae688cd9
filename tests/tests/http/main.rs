//! The real server over the demo model, from a socket's far end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crowd;
mod faults;
mod freeing;
mod goldens;
mod sampling;
mod structured;
mod together;
