//! Nemotron-Labs-Diffusion: Ministral 3 under other names.

use super::Family;
use super::names::Names;
use super::qwen;
use crate::config;

/// A causal context, one open block, and queries that grow with the position.
pub(super) const NEMOTRON: Family = Family {
    name: "nemotron-labs",
    about: "Nemotron-Labs-Diffusion-3B, -8B, -14B",
    architectures: &["NemotronLabsDiffusionModel", "MinistralDiffEncoderModel"],
    model_types: &["nemotron_labs_diffusion"],
    read: config::nemotron,
    names: &NAMES,
};

const NAMES: Names = Names {
    embedding: "encoder.embed_tokens",
    layers: "encoder.layers",
    norm: "encoder.norm",
    head: "diffusion_head",
    ..qwen::NAMES
};
