//! DiffusionGemma: its names, and how its layers are loaded.

use super::Family;
use super::block::{Block, Experts, HeadSizes, Mlp};
use super::canvas::{CanvasParts, Sandwich};
use super::held::Held;
use super::load::Loader;
use super::names::{ExpertNames, Names};
use super::qwen;
use super::tensors::Matrix;
use crate::LoadError;
use crate::config::{self, CanvasSpec, ExpertSpec, RouterSpec};
use crate::info::CanvasInfo;
use crate::memory::floats;
use crate::router::Router;
use kernels::{AngleSpec, Epilogue, Numbers, Storage, Stored, WeightDtype};

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
    experts: ExpertNames {
        router: "router.proj",
        bias: "",
        experts: "experts",
        shared: "",
    },
    norm: "model.decoder.norm",
    ..qwen::NAMES
};

/// The scalars of the encoder's layers are its own.
const ENCODER_LAYERS: &str = "model.encoder.language_model.layers";

/// What a layer's place in the model decides.
#[derive(Clone, Copy)]
struct Place {
    heads: HeadSizes,
    full: bool,
    /// Its number among the keys and values: layers with a window come first.
    kv: usize,
}

impl<S: Storage> Loader<'_, S> {
    /// The parts of a canvas model besides its layers; `table` is the embedding table.
    pub(super) fn canvas_parts(
        &mut self,
        (spec, info): (&CanvasSpec, &CanvasInfo),
        table: &[f32],
    ) -> Result<CanvasParts<S>, LoadError> {
        let (d, vocab) = (self.spec.info.width, self.spec.info.vocab_size);
        let angles = self.angles_of(AngleSpec {
            theta: spec.rope.theta,
            width: info.full_head_width,
            positions: self.spec.info.max_positions,
            scaling: None,
            turning: spec.turning,
        })?;
        let prefix = "model.decoder.self_conditioning";
        let pre_norm = self.norm(format!("{prefix}.pre_norm"))?;
        let mlp = self.gated_at(prefix, self.spec.info.mlp_width)?;
        let ones = self.ones(d)?;
        let mut transposed = vec![0.0; table.len().min(vocab.saturating_mul(d))];
        for (token, row) in table.chunks_exact(d.max(1)).take(vocab).enumerate() {
            for (column, x) in row.iter().enumerate() {
                transposed[column * vocab + token] = *x;
            }
        }
        // Probabilities have a wide range: 8 bits would not hold them.
        let dtype = match self.weights.dtype {
            WeightDtype::F32 | WeightDtype::Blocks => WeightDtype::F32,
            _ => WeightDtype::Bf16,
        };
        let soft = Stored {
            shape: (d, vocab),
            numbers: Numbers::Floats(&transposed),
            bias: None,
            dtype,
            epilogue: Epilogue::None,
        };
        let besides = floats(2 * d.saturating_mul(vocab));
        let soft = self.stored(self.names.embedding, soft, besides)?;
        Ok(CanvasParts {
            angles,
            pre_norm,
            mlp,
            ones,
            soft,
            cap: spec.cap,
        })
    }

    fn ones(&mut self, count: usize) -> Result<S::Vector, LoadError> {
        let numbers = vec![1.0; if self.weights.reads { count } else { 0 }];
        self.vector(count, &numbers)
    }

    /// One layer.
    pub(super) fn canvas_block(
        &mut self,
        number: usize,
        (spec, canvas): (&CanvasSpec, &CanvasInfo),
        experts: &ExpertSpec,
    ) -> Result<Block<S>, LoadError> {
        let (names, info) = (self.names, &self.spec.info);
        let place = place(number, spec, canvas, info);
        let of = |tensor: &str| format!("{}.{number}.{tensor}", names.layers);
        let attention_norm = self.norm(of(names.attention_norm))?;
        let qkv = self.shared_qkv(number, place)?;
        let head_norms = Some(self.three_norms(number, place)?);
        let out = Matrix {
            name: of(names.attention_out),
            rows: info.width,
            bias: false,
        };
        let inner = place.heads.heads * place.heads.head_width;
        let out = self.fused(inner, &[out], Epilogue::None)?;
        let mlp_norm = self.norm(of(names.mlp_norm))?;
        let mlp = Mlp::Dense(self.gated(number, names.mlp, info.mlp_width)?);
        let sandwich = Sandwich {
            attended: self.norm(of("post_attention_layernorm"))?,
            dense: self.norm(of("post_feedforward_layernorm_1"))?,
            router: self.router_norm(number)?,
            before_experts: self.norm(of("pre_feedforward_layernorm_2"))?,
            experts: self.stacked_experts(number, experts)?,
            after_experts: self.norm(of("post_feedforward_layernorm_2"))?,
            both: self.norm(of("post_feedforward_layernorm"))?,
            scalars: self.scalars(number)?,
        };
        Ok(Block {
            attention_norm,
            qkv,
            head_norms,
            out,
            mlp_norm,
            mlp,
            heads: place.heads,
            kv: place.kv,
            full: place.full,
            sandwich: Some(Box::new(sandwich)),
        })
    }

    /// Query, key and value in one matrix; in full layers the values are the keys before their norm.
    fn shared_qkv(&mut self, number: usize, place: Place) -> Result<S::Matrix, LoadError> {
        let (d, heads) = (self.spec.info.width, place.heads);
        let (q, kv) = (
            heads.heads * heads.head_width,
            heads.groups * heads.head_width,
        );
        let mut numbers = Vec::new();
        let [query, key, value] = [0, 1, 2].map(|part| {
            let part = self.names.qkv.get(part).copied().unwrap_or_default();
            format!("{}.{number}.{part}.weight", self.names.layers)
        });
        self.weights.append(&query, &[q, d], &mut numbers)?;
        self.weights.append(&key, &[kv, d], &mut numbers)?;
        match place.full {
            true => numbers.extend_from_within((q * d).min(numbers.len())..),
            false => self.weights.append(&value, &[kv, d], &mut numbers)?,
        }
        let rows = q + 2 * kv;
        let held = Held::Floats(numbers);
        let besides = held.bytes(rows, d);
        let matrix = Stored {
            shape: (rows, d),
            numbers: Numbers::Floats(&[]),
            bias: None,
            dtype: self.weights.dtype,
            epilogue: Epilogue::None,
        };
        self.whole(&query, &held, matrix, besides)
    }

    /// The norms of query, key and value heads. Scores are not divided by the square root of the
    /// head width, which attention does: the queries' norm has the inverse. Values have no weights.
    fn three_norms(&mut self, number: usize, place: Place) -> Result<S::Vector, LoadError> {
        let HeadSizes {
            heads,
            groups,
            head_width,
        } = place.heads;
        let mut all = Vec::new();
        let scale = (head_width as f32).sqrt();
        let of = self.names.head_norms.into_iter();
        for (name, (count, scale)) in of.zip([(heads, scale), (groups, 1.0)]) {
            let name = format!("{}.{number}.{name}.weight", self.names.layers);
            let mut one = self.weights.tensor(&name, &[head_width])?;
            one.iter_mut().for_each(|x| *x *= scale);
            all.extend(one.repeat(count));
        }
        if self.weights.reads {
            all.resize(all.len() + groups * head_width, 1.0);
        }
        self.vector((heads + 2 * groups) * head_width, &all)
    }

    /// The norm of the router's input, which has a scale and the inverse root of the width.
    fn router_norm(&mut self, number: usize) -> Result<S::Vector, LoadError> {
        let d = self.spec.info.width;
        let name = format!("{}.{number}.router.scale", self.names.layers);
        let mut scale = self.weights.tensor(&name, &[d])?;
        let root = 1.0 / (d as f32).sqrt();
        scale.iter_mut().for_each(|x| *x *= root);
        self.vector(d, &scale)
    }

    /// What a layer's result is multiplied by: rows that are encoded, and rows that are denoised.
    fn scalars(&mut self, number: usize) -> Result<[f32; 2], LoadError> {
        let mut read = |layers: &str| {
            let name = format!("{layers}.{number}.layer_scalar");
            let scalar = self.weights.tensor(&name, &[1])?;
            Ok::<f32, LoadError>(scalar.first().copied().unwrap_or(1.0))
        };
        Ok([read(ENCODER_LAYERS)?, read(self.names.layers)?])
    }

    /// Experts whose matrices are stored in one tensor each for all gates and ups, and all downs.
    fn stacked_experts(
        &mut self,
        number: usize,
        spec: &ExpertSpec,
    ) -> Result<Experts<S>, LoadError> {
        let (d, count, width) = (self.spec.info.width, spec.count, spec.width);
        let prefix = format!("{}.{number}", self.names.layers);
        let gate = format!("{prefix}.{}.weight", self.names.experts.router);
        let numbers = self.weights.tensor(&gate, &[count, d])?;
        let matrix = Stored {
            shape: (count, d),
            numbers: Numbers::Floats(&numbers),
            bias: None,
            // Routers compute in f32 for every dtype.
            dtype: WeightDtype::F32,
            epilogue: Epilogue::None,
        };
        let gate = self.stored(&gate, matrix, floats(count.saturating_mul(d)))?;
        let scales = format!("{prefix}.router.per_expert_scale");
        let scales = self.weights.tensor(&scales, &[count])?;
        let both = format!("{prefix}.experts.gate_up_proj");
        let gate_ups = self.stacked(&both, [count, 2 * width, d], Epilogue::GeluGate)?;
        let down = format!("{prefix}.experts.down_proj");
        let downs = self.stacked(&down, [count, d, width], Epilogue::None)?;
        let experts = gate_ups.into_iter().zip(downs);
        Ok(Experts {
            gate,
            router: Router {
                bias: None,
                scales: Some(scales),
                spec: RouterSpec { ..spec.router },
                count,
                sharing: self.weights.sharing,
            },
            experts: experts.map(|(gate_up, down)| [gate_up, down]).collect(),
            shared: None,
        })
    }

    /// The matrices `[rows, k]` of a tensor `[count, rows, k]`.
    fn stacked(
        &mut self,
        name: &str,
        [count, rows, k]: [usize; 3],
        epilogue: Epilogue,
    ) -> Result<Vec<S::Matrix>, LoadError> {
        let numbers = self.weights.tensor(name, &[count, rows, k])?;
        let size = rows.saturating_mul(k);
        let matrices = (0..count).map(|index| {
            let range = (index * size).min(numbers.len())..((index + 1) * size).min(numbers.len());
            let matrix = Stored {
                shape: (rows, k),
                numbers: Numbers::Floats(&numbers[range]),
                bias: None,
                dtype: self.weights.dtype,
                epilogue,
            };
            self.stored(name, matrix, floats(size.saturating_mul(count)))
        });
        matrices.collect()
    }
}

/// Sizes and number of a layer.
fn place(number: usize, spec: &CanvasSpec, canvas: &CanvasInfo, info: &crate::ModelInfo) -> Place {
    let full = spec.full[number];
    let before = spec.full[..number].iter().filter(|other| **other == full);
    let before = before.count();
    match full {
        true => Place {
            heads: HeadSizes {
                heads: info.heads,
                groups: canvas.full_groups,
                head_width: canvas.full_head_width,
            },
            full,
            kv: info.layers - canvas.full_layers + before,
        },
        false => Place {
            heads: HeadSizes {
                heads: info.heads,
                groups: info.groups,
                head_width: info.head_width,
            },
            full,
            kv: before,
        },
    }
}
