//! The HTTP server over the simulated model, from the outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod errors;
mod keys;
mod lifecycle;
mod malformed;
mod metrics;
mod optional;
mod shapes;
mod streaming;
mod tokens;
mod trace;
