//! The one path of a generation: admitted, submitted to the engine, delivered as text.

pub mod admit;
pub mod assemble;
pub mod best_of;
pub mod choice;
pub mod code;
pub mod deliver;
pub mod encode;
pub mod grammar;
pub mod ids;
pub mod logprobs;
pub mod submit;
pub mod usage;
pub mod waiting;
