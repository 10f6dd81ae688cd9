//! A dense decoder on a device: the same families, the same tensors, other kernels.

use super::layer::Layer;
use super::load::own_head;
use super::names::Names;
use super::read;
use crate::config::{Keys, Spec};
use crate::layers::{Matrix, stacked};
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use kernels::device::{
    Array, AttentionScratch, Buffer, Device, DeviceBatch, DeviceError, DeviceMatrix, DevicePool,
    Heads, Places, Precision, copy_pages, embed, norm, split,
};
use kernels::{Epilogue, RopeTable, WeightDtype};
use std::ops::Range;

/// Numbers of an embedding table on their way at a time.
const PIECE: usize = 1 << 22;

/// One layer.
struct Block {
    attention_norm: Buffer,
    qkv: DeviceMatrix,
    head_norms: Option<Buffer>,
    out: DeviceMatrix,
    mlp_norm: Buffer,
    gate_up: DeviceMatrix,
    down: DeviceMatrix,
}

/// Embedding, layers, norm, LM head.
pub(crate) struct DeviceDecoder {
    embedding: Array,
    heads: Heads,
    blocks: Vec<Block>,
    norm: Buffer,
    head: DeviceMatrix,
    eps: f32,
    precision: Precision,
}

/// Arrays of so many rows that a pass works in.
pub(crate) struct Work {
    /// The residual stream `[r, d]`, f32.
    x: Array,
    normed: Array,
    qkv: Array,
    q: Array,
    attended: Array,
    gated: Array,
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.to_string())
}

/// Loads the architecture that the configuration names onto a device.
pub(crate) fn load_on(
    device: &Device,
    config: &Keys,
    weights: &mut Weights,
) -> Result<(DeviceDecoder, ModelInfo), LoadError> {
    let (spec, names) = read(config, weights)?;
    let precision = match weights.dtype {
        WeightDtype::F32 => Precision::F32,
        WeightDtype::Bf16 => Precision::Bf16,
        WeightDtype::Int8 => {
            let what = "on a CUDA device: expected a dtype of f32 or bf16, found int8";
            return Err(LoadError::Setup(what.to_owned()));
        }
    };
    if spec.experts.is_some() {
        let what = format!(
            "on a CUDA device: {} has experts, a dense model is expected",
            { spec.info.family }
        );
        return Err(LoadError::Setup(what));
    }
    let loader = Loader {
        device,
        precision,
        weights,
    };
    let decoder = loader.decoder(&spec, names)?;
    Ok((decoder, spec.info))
}

/// Where tensors come from and go to.
struct Loader<'a> {
    device: &'a Device,
    precision: Precision,
    weights: &'a mut Weights,
}

impl Loader<'_> {
    fn decoder(mut self, spec: &Spec, names: &Names) -> Result<DeviceDecoder, LoadError> {
        let info = &spec.info;
        let table = RopeTable::new(spec.rope_theta, spec.rotary_width, info.max_positions);
        let name = format!("{}.weight", names.embedding);
        let numbers = self
            .weights
            .tensor(&name, &[info.embedding_size, info.width])?;
        let embedding = self.table(&numbers, info.width)?;
        let head = match spec.tied {
            true => {
                // Some exports store it all the same.
                self.weights.ignore(&format!("{}.weight", names.head));
                Some(self.matrix(&numbers[..info.vocab_size * info.width], info.width, None)?)
            }
            false => None,
        };
        drop(numbers);
        let layers = 0..info.layers;
        let blocks = layers.map(|number| {
            self.block(&Layer {
                spec,
                names,
                number,
            })
        });
        let blocks = blocks.collect::<Result<_, _>>()?;
        let norm = self.floats(names.norm, info.width)?;
        let head = match head {
            Some(head) => head,
            None => {
                let parts = [own_head(spec, names)];
                let (all, bias) = stacked(self.weights, info.width, &parts)?;
                let bias = bias.as_deref().map(|bias| &bias[..info.vocab_size]);
                self.matrix(&all[..info.vocab_size * info.width], info.width, bias)?
            }
        };
        Ok(DeviceDecoder {
            embedding,
            heads: Heads::new(self.device, &table).map_err(failed)?,
            blocks,
            norm,
            head,
            eps: spec.norm_eps,
            precision: self.precision,
        })
    }

    fn block(&mut self, layer: &Layer<'_>) -> Result<Block, LoadError> {
        let (spec, names) = (layer.spec, layer.names);
        let info = &spec.info;
        let inner = info.heads * info.head_width;
        let [gate, up, down] = layer.gated_parts(names.mlp, info.mlp_width);
        let head_norms = match spec.head_norms {
            true => Some(self.head_norms(layer)?),
            false => None,
        };
        Ok(Block {
            attention_norm: self.floats(&layer.name(names.attention_norm), info.width)?,
            qkv: self.fused(info.width, &layer.qkv(), Epilogue::None)?,
            head_norms,
            out: self.fused(inner, &[layer.out()], Epilogue::None)?,
            mlp_norm: self.floats(&layer.name(names.mlp_norm), info.width)?,
            gate_up: self.fused(info.width, &[gate, up], Epilogue::SiluGate)?,
            down: self.fused(info.mlp_width, &[down], Epilogue::None)?,
        })
    }

    /// Norms of the query and key heads, head by head.
    fn head_norms(&mut self, layer: &Layer<'_>) -> Result<Buffer, LoadError> {
        let info = &layer.spec.info;
        let mut all = Vec::new();
        for (part, count) in layer.names.head_norms.iter().zip([info.heads, info.groups]) {
            let name = format!("{}.weight", layer.name(part));
            let one = self.weights.tensor(&name, &[info.head_width])?;
            all.extend(one.repeat(count));
        }
        Buffer::floats(self.device, &all).map_err(failed)
    }

    /// `{name}.weight [d]`.
    fn floats(&mut self, name: &str, d: usize) -> Result<Buffer, LoadError> {
        let numbers = self.weights.tensor(&format!("{name}.weight"), &[d])?;
        Buffer::floats(self.device, &numbers).map_err(failed)
    }

    fn table(&self, numbers: &[f32], d: usize) -> Result<Array, LoadError> {
        let rows = numbers.len() / d;
        let table = Array::new(self.device, self.precision, rows, d).map_err(failed)?;
        let step = (PIECE / d).max(1);
        for (piece, part) in numbers.chunks(step * d).enumerate() {
            table.write(piece * step, part).map_err(failed)?;
        }
        Ok(table)
    }

    fn fused(
        &mut self,
        k: usize,
        parts: &[Matrix],
        epilogue: Epilogue,
    ) -> Result<DeviceMatrix, LoadError> {
        let (weight, bias) = stacked(self.weights, k, parts)?;
        let matrix = kernels::Matrix {
            weight: &weight,
            k,
            bias: bias.as_deref(),
        };
        DeviceMatrix::new(self.device, self.precision, matrix, epilogue).map_err(failed)
    }

    fn matrix(
        &self,
        weight: &[f32],
        k: usize,
        bias: Option<&[f32]>,
    ) -> Result<DeviceMatrix, LoadError> {
        let matrix = kernels::Matrix { weight, k, bias };
        DeviceMatrix::new(self.device, self.precision, matrix, Epilogue::None).map_err(failed)
    }
}

impl DeviceDecoder {
    /// What its matrices are kept as.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// Arrays for passes of up to `rows` rows.
    pub(crate) fn work(&self, info: &ModelInfo, rows: usize) -> Result<Work, DeviceError> {
        let (device, precision) = (self.embedding.device(), self.precision);
        let (d, inner) = (info.width, info.heads * info.head_width);
        let all = inner + 2 * info.groups * info.head_width;
        Ok(Work {
            x: Array::new(device, Precision::F32, rows, d)?,
            normed: Array::padded(device, precision, rows, d)?,
            qkv: Array::new(device, Precision::F32, rows, all)?,
            q: Array::new(device, precision, rows, inner)?,
            attended: Array::padded(device, precision, rows, inner)?,
            gated: Array::padded(device, precision, rows, info.mlp_width)?,
        })
    }

    /// Copies the batch's pages and runs all layers on its rows.
    pub(crate) fn hidden(
        &self,
        work: &Work,
        batch: &DeviceBatch,
        (pool, scratch): (&DevicePool, &mut AttentionScratch),
    ) -> Result<(), DeviceError> {
        copy_pages(pool, batch)?;
        let rows = batch.rows();
        if rows == 0 {
            return Ok(());
        }
        let all = Places::First(rows);
        embed(&self.embedding, batch, &work.x)?;
        for (number, block) in self.blocks.iter().enumerate() {
            let weight = (&block.attention_norm, self.eps);
            norm((&work.x, &all), batch, weight, &work.normed)?;
            block.qkv.product(&work.normed, rows, &work.qkv)?;
            let norms = block.head_norms.as_ref().map(|norms| (norms, self.eps));
            split(
                &work.qkv,
                (&self.heads, norms),
                batch,
                &work.q,
                (pool, number),
            )?;
            scratch.attend(&work.q, (pool, number), batch, &work.attended)?;
            block.out.add_product(&work.attended, rows, &work.x)?;
            norm(
                (&work.x, &all),
                batch,
                (&block.mlp_norm, self.eps),
                &work.normed,
            )?;
            block.gate_up.product(&work.normed, rows, &work.gated)?;
            block.down.add_product(&work.gated, rows, &work.x)?;
        }
        Ok(())
    }

    /// Logits of a range of the batch's scored rows: the first rows of `logits`.
    pub(crate) fn logits(
        &self,
        work: &Work,
        batch: &DeviceBatch,
        range: Range<usize>,
        (normed, logits): (&Array, &Array),
    ) -> Result<(), DeviceError> {
        let rows = range.len();
        let places = Places::Scored(range);
        norm((&work.x, &places), batch, (&self.norm, self.eps), normed)?;
        self.head.product(normed, rows, logits)
    }
}
