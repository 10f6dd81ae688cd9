//! HTTP without the API: keys, origins, limits, request ids, shutdown.

pub mod authorization;
pub mod body;
pub mod bytes;
pub mod client;
pub mod keys;
pub mod limits;
pub mod origin;
pub mod refusal;
pub mod request_id;
pub mod serve;
pub mod settings;
pub mod shutdown;
pub mod sse;
