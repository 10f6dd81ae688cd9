//! A simulated executor: the deterministic, seeded double of a model for everything above it.
//!
//! [`SimExecutor`] holds to the whole contract of a forward pass. It keeps a physical KV store,
//! performs page copies, writes every row's record to its slot and reads back only the slots
//! `[0, visible_end)` of the row's own page table. What it proposes is a hidden text that follows
//! from the tokens it can see there, with a confidence that grows with the known tokens around a
//! position. A wrong slot, a stale page, a missing copy or another sequence's data therefore
//! changes its output, or is refused as an error where it can be told for sure.
#![deny(missing_docs)]

mod allowed;
mod check;
mod config;
mod context;
mod distribution;
mod executor;
mod hash;
mod kv;
mod law;
mod text;

pub use config::{ConfidenceLaw, Fidelity, SimConfig, SimConfigError};
pub use executor::{SimCounters, SimExecutor, StepHook};
