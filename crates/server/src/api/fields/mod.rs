//! Request fields: their types, and the groups of them that several endpoints share.

pub mod body;
pub(super) mod canvas;
pub(super) mod conversation;
pub(super) mod diffusion;
pub(super) mod logprobs;
pub(super) mod messages;
pub mod numbers;
pub mod promises;
pub(super) mod prompt;
pub(super) mod sampling;
pub(crate) mod schema;
pub(super) mod shared;
pub(super) mod stops;
pub(super) mod structured;
pub mod table;
pub(super) mod tool_choice;
pub(super) mod tools;
pub mod types;
pub(super) mod xargs;
