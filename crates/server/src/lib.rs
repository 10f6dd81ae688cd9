//! The HTTP server: OpenAI's endpoints, streaming, limits, errors, metrics, graceful shutdown, the
//! playground page.
//!
//! A generation request takes one path:
//!
//! 1. [`api::endpoint`]: the handler reads the body under the limits of `http`.
//! 2. `api/completions.rs`, `api/chat.rs`, ...: the endpoint reads its fields (`api/fields`) and
//!    converts them to a [`Generation`].
//! 3. [`pipeline::admit`] encodes the prompts, checks them against the context and compiles the
//!    grammar.
//! 4. [`pipeline::submit`] makes the engine's requests and submits all or none.
//! 5. [`pipeline::deliver`]: events of the engine become the deltas of a [`Delivery`].
//! 6. The endpoint shapes them as one JSON object or as server-sent events.
//!
//! To add an endpoint, implement [`Endpoint`] in a file of `api` and add its line to the table in
//! `api/mod.rs`; outside this crate, pass its [`Route`] to [`router_with`]. [`error`] is the only
//! table of status codes, [`metrics`] names every metric once.
#![deny(missing_docs)]

pub mod api;
mod backend;
pub mod error;
mod http;
pub mod metrics;
pub mod pipeline;
mod serve;
mod state;

pub use api::endpoint::Endpoint;
pub use api::fields::body::JsonBody;
pub use api::route::Route;
pub use api::{router, router_with};
pub use backend::{Backend, Formats, SamplingDefaults, ServedModel};
pub use error::{ApiError, ErrorCode};
pub use http::keys::{ApiKeys, KeyRing, KeysError};
pub use http::settings::{RequestLimits, Settings, Timeouts};
pub use http::shutdown::{Phase, Shutdown};
pub use metrics::{DeviceBytes, Metrics, MetricsConfig, SpanCounters};
pub use pipeline::code::is_code_shaped;
pub use pipeline::deliver::Delivery;
pub use pipeline::generation::{Generation, Input};
pub use pipeline::ids::choice_seed;
pub use serve::{serve, serve_router};
pub use state::AppState;
