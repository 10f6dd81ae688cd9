//! The HTTP server: OpenAI shapes, streaming, limits, errors, metrics, graceful shutdown, the
//! playground page.
//!
//! [`error`] is the only table of status codes, [`metrics`] names every metric once.

mod api;
pub mod error;
mod fields;
mod http;
mod json;
pub mod metrics;
mod pipeline;
mod record;
mod request;
mod spans;
mod state;

pub use api::router;
pub use http::keys::{ApiKeys, KeysError};
pub use http::serve::serve;
pub use http::shutdown::{Phase, Shutdown};
pub use metrics::{Metrics, MetricsConfig, SpanCounters};
pub use pipeline::code::is_code_shaped;
pub use pipeline::ids::choice_seed;
pub use state::{AppState, Backend, SamplingDefaults, ServedModel, Settings};
