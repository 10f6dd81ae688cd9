//! The layers of the architectures.

mod attention;
mod embedding;
mod experts;
mod linear;
mod mlp;
mod norm;
mod sharing;

pub(crate) use attention::{Attention, AttentionShape};
pub(crate) use embedding::Embedding;
pub(crate) use experts::{Experts, Router};
pub(crate) use linear::{Head, Matrix, head, stacked};
pub(crate) use mlp::GatedMlp;
pub(crate) use norm::RmsNorm;
pub use sharing::ExpertSharing;
