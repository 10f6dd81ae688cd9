//! HTTP without the API: keys, origins, connections and their limits, request ids, shutdown.

pub mod authorization;
pub mod body;
pub mod bytes;
pub mod client;
pub mod connections;
pub mod keys;
pub mod origin;
pub mod progress;
pub mod refusal;
pub mod request_id;
pub mod settings;
pub mod shutdown;
pub mod socket;
pub mod sse;
