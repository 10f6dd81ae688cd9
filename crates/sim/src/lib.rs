//! A simulated executor: a deterministic, seeded stand-in for a model in tests.
//!
//! [`SimExecutor`] keeps the whole contract of a forward pass. It has a physical KV store, copies
//! pages, writes every row's record to its slot and reads only the slots that a row sees of the
//! row's own page table. It proposes a hidden text that is a function of the tokens it reads there;
//! its confidence grows with the number of known tokens near a position. A wrong slot, a stale page,
//! a missing copy or another sequence's data therefore changes its output, or is an error where the
//! simulation can detect it.
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

pub use config::{ConfidenceLaw, Fidelity, Script, SimConfig, SimConfigError};
pub use executor::{SimCounters, SimExecutor, StepHook};
