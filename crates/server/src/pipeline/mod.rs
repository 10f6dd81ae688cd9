//! The one path of a generation: admitted, submitted to the engine, delivered as text.

pub mod admit;
pub mod assemble;
pub(crate) mod best_of;
pub(crate) mod caps;
pub(crate) mod chat_text;
pub(crate) mod choice;
pub(crate) mod code;
pub(crate) mod decide;
pub mod deliver;
pub(crate) mod encode;
pub mod generation;
pub(crate) mod grammar;
pub(crate) mod ids;
pub(crate) mod lanes;
pub(crate) mod logprobs;
pub(crate) mod pools;
pub(crate) mod record;
pub(crate) mod spans;
pub mod submit;
pub(crate) mod thought;
pub mod usage;
pub(crate) mod waiting;
pub mod written;
