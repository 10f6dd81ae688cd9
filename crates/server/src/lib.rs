//! The HTTP server: OpenAI shapes, streaming, limits, errors, metrics, graceful shutdown, the
//! playground page.
//!
//! A request goes `routes::generate` → `body` → `request` (JSON ends here) → `admit`, `encode` and
//! `grammar` (ids, limits, submit) → `choice` and `assemble` (events to text), `logprobs`,
//! `best_of` → `response`, `stream` or `trace`. [`error`] is the only table of status codes,
//! [`metrics`] names every metric once.

mod admit;
mod assemble;
mod best_of;
mod body;
mod choice;
mod code;
mod encode;
pub mod error;
mod fields;
mod framing;
mod generation;
mod grammar;
mod ids;
mod json;
mod keys;
mod local;
mod logprobs;
pub mod metrics;
mod record;
mod refusal;
mod request;
mod request_id;
mod response;
mod routes;
mod serve;
mod shutdown;
mod spans;
mod stall;
mod state;
mod stream;
mod trace;
mod usage;
mod waiting;

pub use code::is_code_shaped;
pub use ids::choice_seed;
pub use keys::{ApiKeys, KeysError};
pub use metrics::{Metrics, MetricsConfig, SpanCounters};
pub use routes::router;
pub use serve::serve;
pub use shutdown::{Phase, Shutdown};
pub use state::{AppState, Backend, SamplingDefaults, ServedModel, Settings};
