//! Plain tensor code of candle, written to be read: the reference for the other backends.
//!
//! It calls none of this crate's kernels. Layers are those of `candle-nn` and `candle-transformers`.
//! Rows are multiplied by whatever algorithm candle chooses for their number, so a row's last bits may
//! depend on the other rows of its batch. Activations are f32. Matrices are blocks of `QMatMul`: in
//! f32, rounded to bf16, or `Q8_0` with 8-bit activations.

mod scoring;
mod storage;

use super::canvas::Restrict;
use super::counting::Bytes;
use super::rows::Rows;
use super::{
    ArrayKind, Attention, Backend, ExpertRows, Head, Host, Norm, Pass, ScoredRange, Selection,
    canvas,
};
use crate::attention::Visible;
use crate::cache::{KvDtype, KvSizes};
use crate::device::{BatchArrays, BatchLimits};
use crate::linear::Epilogue;
use crate::score::Scores;
use crate::simd::unit::WeightDtype;
use candle_core::{D, DType, Device, Module, Result, Tensor, bail};
use candle_nn::ops::{rms_norm, softmax_last_dim, swiglu};
use candle_nn::rotary_emb::rope;
use candle_transformers::models::with_tracing::Embedding;
use candle_transformers::quantized_nn::Linear;
use candle_transformers::utils::repeat_kv;
use std::ops::Range;
use step::Segment;

/// A logit added to slots that a row does not see.
const UNSEEN: f32 = -1e30;

/// Candle on one of its devices.
pub struct Candle {
    device: Device,
    bytes: Bytes,
}

impl Default for Candle {
    /// The processor.
    fn default() -> Self {
        Self { device: Device::Cpu, bytes: Bytes::default() }
    }
}

/// A matrix, and the operation on its product.
pub struct PlainMatrix {
    linear: Linear,
    epilogue: Epilogue,
}

impl PlainMatrix {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let product = self.linear.forward(x)?;
        match self.epilogue {
            Epilogue::None => Ok(product),
            Epilogue::SiluGate => swiglu(&product),
            Epilogue::GeluGate => {
                let both = product.chunk(2, D::Minus1)?;
                both[0].gelu()? * &both[1]
            }
        }
    }
}

/// Cosines and sines `[positions, half]`.
pub struct PlainRope {
    cos: Tensor,
    sin: Tensor,
    /// Factors of queries `[positions]`, if they are not all 1.
    query_factors: Option<Tensor>,
}

/// Keys and values `[slots, g c]` of each layer.
pub struct PlainKv {
    layers: Vec<[Tensor; 2]>,
    page: usize,
}

/// A batch as tensors.
#[derive(Default)]
pub struct PlainBatch(Option<Indices>);

struct Indices {
    tokens: Tensor,
    positions: Tensor,
    /// `[r, 1]`.
    slots: Tensor,
    segments: Vec<Seen>,
}

/// The slots that the rows of a segment see.
struct Seen {
    rows: Range<usize>,
    /// The segment's slots from the first to the last one seen.
    slots: Tensor,
    /// `[rows, slots]`: 0, or [`UNSEEN`].
    mask: Tensor,
    /// `[rows, 1]`: 1, or 0 for a row that sees no slots.
    sees: Tensor,
}

impl PlainBatch {
    fn get(&self) -> Result<&Indices> {
        match &self.0 {
            Some(indices) => Ok(indices),
            None => bail!("the batch was not uploaded"),
        }
    }
}

impl Candle {
    fn list<D: candle_core::WithDType>(&self, numbers: &[D]) -> Result<Tensor> {
        Tensor::from_slice(numbers, numbers.len(), &self.device)
    }

    /// The slots that the rows of one segment see.
    fn seen(
        &self,
        arrays: &BatchArrays<'_>,
        visible: &[Visible],
        segment: &Segment,
        page: usize,
    ) -> Result<Seen> {
        let rows = segment.rows.start as usize..segment.rows.end as usize;
        let pages = &arrays.pages[segment.pages.start as usize..segment.pages.end as usize];
        let visible = &visible[rows.clone()];
        // At least one slot, so that no tensor is empty.
        let count = visible.iter().map(Visible::reach).max().unwrap_or(0).max(1);
        let slot = |slot: usize| (pages[slot / page].index() * page + slot % page) as u32;
        let slots: Vec<u32> = (0..count).map(slot).collect();
        let mut mask = Vec::with_capacity(rows.len() * count);
        let mut sees = Vec::with_capacity(rows.len());
        for row in visible {
            let seen = (0..count as u32).map(|slot| row.sees(slot));
            sees.push(f32::from(seen.clone().any(|seen| seen)));
            mask.extend(seen.map(|seen| if seen { 0.0 } else { UNSEEN }));
        }
        Ok(Seen {
            slots: self.list(&slots)?,
            mask: self.list(&mask)?.reshape((rows.len(), count))?,
            sees: self.list(&sees)?.unsqueeze(1)?,
            rows,
        })
    }
}

impl Backend for Candle {
    type Array = Rows;
    type Batch = PlainBatch;
    type Kv = PlainKv;
    type Scores = Scores;

    const CHUNK: usize = 64;

    canvas::tensor_operations!(rms_norm);

    fn kv(&self, sizes: &[KvSizes]) -> Result<PlainKv> {
        if let Some(sizes) = sizes.iter().find(|sizes| sizes.dtype != KvDtype::F32) {
            bail!("the backend candle keeps keys and values in f32, not in {}", sizes.dtype.name());
        }
        let zeros = |sizes: &KvSizes| {
            let shape = (sizes.page * sizes.pages, sizes.num_kv_heads * sizes.head_width);
            Tensor::zeros(shape, DType::F32, &self.device)
        };
        let each = sizes.iter().flat_map(|sizes| std::iter::repeat_n(sizes, sizes.layers));
        let layers = each.map(|sizes| Ok([zeros(sizes)?, zeros(sizes)?]));
        Ok(PlainKv {
            layers: layers.collect::<Result<_>>()?,
            page: sizes.first().map_or(1, |sizes| sizes.page),
        })
    }

    fn upload(
        &self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        batch: &mut PlainBatch,
    ) -> Result<()> {
        let segments = arrays.segments.iter();
        let segments =
            segments.map(|segment| self.seen(arrays, arrays.visible, segment, limits.page));
        batch.0 = Some(Indices {
            tokens: self.list(arrays.tokens)?,
            positions: self.list(arrays.positions)?,
            slots: self.list(arrays.slots)?.unsqueeze(1)?,
            segments: segments.collect::<Result<_>>()?,
        });
        Ok(())
    }

    fn copy_pages(&self, pass: &Pass<'_, Self>) -> Result<()> {
        let page = pass.kv.page;
        for copy in pass.arrays.copies {
            let (source, destination) =
                (copy.source.index() * page, copy.destination.index() * page);
            for pool in pass.kv.layers.iter().flatten() {
                pool.slice_set(&pool.narrow(0, source, page)?.copy()?, 0, destination)?;
            }
        }
        Ok(())
    }

    fn embed(&self, table: &Embedding, pass: &Pass<'_, Self>, out: &mut Rows) -> Result<()> {
        let tokens = &pass.batch.get()?.tokens;
        out.write(|| table.forward(tokens))
    }

    fn linear_add(&self, matrix: &PlainMatrix, x: &Rows, _: usize, sum: &mut Rows) -> Result<()> {
        let added = (sum.get()? + matrix.forward(x.get()?)?)?;
        sum.write(|| Ok(added))
    }

    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        qkv: &mut Rows,
        q: &mut Rows,
    ) -> Result<()> {
        let (batch, qkv) = (pass.batch.get()?, qkv.get()?);
        let (h, g, c) = (attention.heads, attention.num_kv_heads, attention.head_width);
        let rows = qkv.dim(0)?;
        // The heads from `first` on as `[1, heads, r, c]`, normalised and rotated.
        let rotated = |first: usize, heads: usize| {
            let x = qkv.narrow(1, first * c, heads * c)?;
            let x = x.reshape((1, rows, heads, c))?.transpose(1, 2)?.contiguous()?;
            let x = match attention.norm {
                Some(Norm { weight, eps }) => {
                    rms_norm(&x, &weight.narrow(0, first * c, c)?.contiguous()?, eps)?
                }
                None => x,
            };
            let x = rotate(&x, attention.rope_table, &batch.positions)?;
            x.transpose(1, 2)?.reshape((rows, heads * c))?.contiguous()
        };
        let (mut queries, keys) = (rotated(0, h)?, rotated(h, g)?);
        if let Some(factors) = &attention.rope_table.query_factors {
            let factors = factors.index_select(&batch.positions, 0)?.unsqueeze(1)?;
            queries = queries.broadcast_mul(&factors)?;
        }
        let values = qkv.narrow(1, (h + g) * c, g * c)?.contiguous()?;
        let values = match attention.norm {
            Some(Norm { weight, eps }) if weight.dim(0)? > (h + g) * c => {
                let weight = weight.narrow(0, (h + g) * c, c)?.contiguous()?;
                let normed = rms_norm(&values.reshape((rows * g, c))?, &weight, eps)?;
                normed.reshape((rows, g * c))?
            }
            _ => values,
        };
        let slots = batch.slots.expand((rows, g * c))?.contiguous()?;
        for (pool, new) in pass.kv.layers[attention.layer].iter().zip([keys, values]) {
            pool.scatter_set(&slots, &new, 0)?;
        }
        q.write(|| Ok(queries))
    }

    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Rows,
        out: &mut Rows,
    ) -> Result<()> {
        let (h, g, c) = (attention.heads, attention.num_kv_heads, attention.head_width);
        let queries = q.get()?;
        let [keys, values] = &pass.kv.layers[attention.layer];
        let mut attended = Vec::new();
        let windows = match pass.arrays.canvas {
            Some(canvas) if attention.windowed => {
                let segments = pass.arrays.segments.iter();
                let segments = segments
                    .map(|segment| self.seen(pass.arrays, canvas.windowed, segment, pass.kv.page));
                Some(segments.collect::<Result<Vec<_>>>()?)
            }
            _ => None,
        };
        for seen in windows.as_ref().unwrap_or(&pass.batch.get()?.segments) {
            let rows = seen.rows.len();
            if rows == 0 {
                continue;
            }
            let q = queries.narrow(0, seen.rows.start, rows)?;
            let q = q.reshape((1, rows, h, c))?.transpose(1, 2)?.contiguous()?;
            let gathered = |pool: &Tensor| {
                let slots = pool.index_select(&seen.slots, 0)?;
                let count = slots.dim(0)?;
                let heads = slots.reshape((1, count, g, c))?.transpose(1, 2)?;
                repeat_kv(heads.contiguous()?, h / g)
            };
            let scores = q.matmul(&gathered(keys)?.t()?)?;
            let scores = (scores * (1.0 / (c as f64).sqrt()))?.broadcast_add(&seen.mask)?;
            let mixed = softmax_last_dim(&scores)?.matmul(&gathered(values)?)?;
            let mixed = mixed.transpose(1, 2)?.reshape((rows, h * c))?;
            attended.push(mixed.broadcast_mul(&seen.sees)?);
        }
        out.write(|| Tensor::cat(&attended, 0))
    }

    fn expert(
        &self,
        [gate_up, down]: &[PlainMatrix; 2],
        x: &Rows,
        ExpertRows { rows, weights }: ExpertRows<'_>,
        sum: &mut Rows,
    ) -> Result<()> {
        let ids = self.list(rows)?;
        let product = down.forward(&gate_up.forward(&x.get()?.index_select(&ids, 0)?)?)?;
        let weighted = product.broadcast_mul(&self.list(weights)?.unsqueeze(1)?)?;
        let added = sum.get()?.index_add(&ids, &weighted, 0)?;
        sum.write(|| Ok(added))
    }

    fn score(
        &self,
        head: &Head<'_, Self>,
        x: &Rows,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()> {
        let mut logits = head.matrix.forward(x.get()?)?;
        if let Some(cap) = head.cap.map(f64::from) {
            logits = ((logits / cap)?.tanh()? * cap)?;
        }
        if let Some(scales) = rows.scales() {
            logits = logits.broadcast_div(&self.list(scales)?.unsqueeze(1)?)?;
        }
        scoring::score(logits.to_vec2::<f32>()?, &rows.scorer(), scores)?;
        if let Some(table) = head.soft {
            let logits = logits.copy()?;
            logits.inplace_op1(&Restrict(&rows.scorer()))?;
            let soft = table.forward(&softmax_last_dim(&logits)?)?;
            scores.soft.extend(soft.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(())
    }
}

impl Host for Candle {
    const TEAM: bool = false;

    fn instructions(_: WeightDtype) -> &'static str {
        "candle"
    }
}

/// Rotates the first elements of heads `[1, heads, r, c]` at the positions of their rows.
fn rotate(x: &Tensor, angles: &PlainRope, positions: &Tensor) -> Result<Tensor> {
    let cos = angles.cos.index_select(positions, 0)?;
    let sin = angles.sin.index_select(positions, 0)?;
    let (rotated, width) = (2 * cos.dim(1)?, x.dim(3)?);
    if rotated == width {
        return rope(x, &cos, &sin);
    }
    let first = rope(&x.narrow(3, 0, rotated)?.contiguous()?, &cos, &sin)?;
    Tensor::cat(&[&first, &x.narrow(3, rotated, width - rotated)?], 3)
}
