//! HTTP without the API: who may ask, how large and slow a request may be, ids, shutdown.

pub mod body;
pub mod keys;
pub mod limits;
pub mod origin;
pub mod refusal;
pub mod request_id;
pub mod serve;
pub mod shutdown;
