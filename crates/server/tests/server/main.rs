//! The HTTP server over the simulated model, from the outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod best_of;
mod canvas;
mod common;
mod connections;
mod decisions;
mod errors;
mod health;
mod hints;
mod history;
mod http;
mod infill;
mod keys;
mod lifecycle;
mod logprobs;
mod messages;
mod metrics;
mod openapi;
mod optional;
mod origin;
mod penalties;
mod playground;
mod prediction;
mod promises;
mod reference;
mod responses;
mod shapes;
mod streaming;
mod structured;
mod tokens;
mod tools;
mod trace;
