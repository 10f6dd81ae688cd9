//! DiffusionGemma: its names, and how its layers are loaded.

use super::Family;
use super::block::{Block, Mlp, Sandwich};
use super::load::Loader;
use super::names::{ExpertNames, Names};
use super::qwen;
use super::shared_heads::layer_sizes;
use super::source::Matrix;
use crate::LoadError;
use crate::config::{self, CanvasSpec, ExpertSpec};
use crate::info::CanvasInfo;
use kernels::{Epilogue, Storage};

/// Canvases of noise, read by a decoder that shares its matrices with a causal encoder.
pub(super) const DIFFUSION_GEMMA: Family = Family {
    name: "diffusion-gemma",
    about: "diffusiongemma-26B-A4B-it (text)",
    architectures: &["DiffusionGemmaForBlockDiffusion"],
    model_types: &["diffusion_gemma"],
    read: config::diffusion_gemma,
    names: &NAMES,
};

/// The tensors of the decoder, which the encoder shares.
const NAMES: Names = Names {
    embedding: "model.decoder.embed_tokens",
    layers: "model.decoder.layers",
    mlp_norm: "pre_feedforward_layernorm",
    experts: ExpertNames { router: "router.proj", bias: "", experts: "experts", shared: "" },
    norm: "model.decoder.norm",
    ..qwen::NAMES
};

/// The scalars of the encoder's layers are its own.
const ENCODER_LAYERS: &str = "model.encoder.language_model.layers";

impl<S: Storage> Loader<'_, S> {
    /// One layer.
    pub(super) fn canvas_block(
        &mut self,
        number: usize,
        spec: &CanvasSpec,
        canvas: &CanvasInfo,
        experts: &ExpertSpec,
    ) -> Result<Block<S>, LoadError> {
        let (names, info) = (self.names, &self.spec.info);
        let sizes = layer_sizes(number, spec, canvas, info);
        let name = |tensor: &str| format!("{}.{number}.{tensor}", names.layers);
        let attention_norm = self.norm(name(names.attention_norm))?;
        let qkv = self.shared_qkv(number, sizes)?;
        let head_norms = Some(self.three_norms(number, sizes)?);
        let out = Matrix { name: name(names.attention_out), rows: info.width, bias: false };
        let inner = sizes.heads.num_heads * sizes.heads.head_width;
        let out = self.fused(inner, &[out], Epilogue::None)?;
        let mlp_norm = self.norm(name(names.mlp_norm))?;
        let mlp = Mlp::Dense(self.gated(number, names.mlp, info.mlp_width)?);
        let sandwich = Sandwich {
            attended: self.norm(name("post_attention_layernorm"))?,
            dense: self.norm(name("post_feedforward_layernorm_1"))?,
            router: self.router_norm(number)?,
            before_experts: self.norm(name("pre_feedforward_layernorm_2"))?,
            experts: self.stacked_experts(number, experts)?,
            after_experts: self.norm(name("post_feedforward_layernorm_2"))?,
            both: self.norm(name("post_feedforward_layernorm"))?,
            scalars: self.scalars(number)?,
        };
        Ok(Block {
            attention_norm,
            qkv,
            head_norms,
            out,
            mlp_norm,
            mlp,
            heads: sizes.heads,
            kv: sizes.kv,
            full: sizes.full,
            sandwich: Some(Box::new(sandwich)),
            adapter: None,
        })
    }

    /// The factors of a layer's result, for encoded rows and for denoised rows.
    fn scalars(&mut self, number: usize) -> Result<[f32; 2], LoadError> {
        let mut read = |layers: &str| {
            let name = format!("{layers}.{number}.layer_scalar");
            let scalar = self.weights.tensor(&name, &[1])?;
            Ok::<f32, LoadError>(scalar.first().copied().unwrap_or(1.0))
        };
        Ok([read(ENCODER_LAYERS)?, read(self.names.layers)?])
    }
}
