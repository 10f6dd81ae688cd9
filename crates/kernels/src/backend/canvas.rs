//! Operations of backends whose arrays are tensors: the ones that they have in common, and those of
//! canvas models (DiffusionGemma).

use super::rows::Rows;
use crate::device::{BatchArrays, CanvasRows};
use crate::parallel::{self, Shared};
use crate::score::Scorer;
use crate::storage::numbers_mut;
use candle_core::{CpuStorage, D, DType, Device, InplaceOp1, Layout, Result, Tensor, bail};

/// The operations that are alike in backends whose arrays are [`Rows`](super::Rows), with this function
/// for norms of rows.
macro_rules! tensor_operations {
    ($norm:path) => {
        fn array(&self, _: ArrayKind, _: usize, _: usize) -> Result<Rows> {
            Ok(Rows::default())
        }

        fn rows(&self, pass: &Pass<'_, Self>) -> usize {
            pass.arrays.tokens.len()
        }

        fn scored(&self, pass: &Pass<'_, Self>) -> usize {
            pass.arrays.scored.len()
        }

        fn norm(
            &self,
            input: Selection<'_, Self>,
            pass: &Pass<'_, Self>,
            norm: Norm<'_, Self>,
            out: &mut Rows,
        ) -> Result<()> {
            let x = input.array.chosen(input.rows, pass.arrays)?;
            out.write(|| $norm(&x, norm.weight, norm.eps))
        }

        fn linear(&self, matrix: &Self::Matrix, x: &Rows, _: usize, out: &mut Rows) -> Result<()> {
            let x = x.get()?;
            out.write(|| matrix.forward(x))
        }

        fn append_adapted(
            &self,
            inner: &Self::Matrix,
            rank: usize,
            pass: &Pass<'_, Self>,
            x: &mut Rows,
        ) -> Result<()> {
            let product = match pass.adapted.is_empty() {
                true => None,
                false => Some(inner.forward(&canvas::listed(pass.adapted, x)?)?),
            };
            canvas::append(pass.adapted, product, rank, x)
        }

        fn route(&self, router: &Self::Matrix, x: &Rows) -> Result<Vec<f32>> {
            router.forward(x.get()?)?.flatten_all()?.to_vec1()
        }

        fn clear(&self, x: &mut Rows, rows: usize, width: usize) -> Result<()> {
            canvas::clear(rows, width, x)
        }

        fn soft(&self, pass: &Pass<'_, Self>, out: &mut Rows, width: usize) -> Result<()> {
            canvas::soft(pass.arrays, width, out)
        }

        fn norm_add(&self, x: &Rows, _: usize, norm: Norm<'_, Self>, sum: &mut Rows) -> Result<()> {
            let added = (sum.get()? + $norm(x.get()?, norm.weight, norm.eps)?)?;
            sum.write(|| Ok(added))
        }

        fn norm_denoised(
            &self,
            pass: &Pass<'_, Self>,
            norm: Norm<'_, Self>,
            x: &mut Rows,
        ) -> Result<()> {
            let rows = canvas::rows(pass.arrays)?.denoised;
            let new = $norm(&canvas::listed(rows, x)?, norm.weight, norm.eps)?;
            canvas::replace(rows, &new, x)
        }

        fn scale(&self, pass: &Pass<'_, Self>, factors: [f32; 2], x: &mut Rows) -> Result<()> {
            canvas::scale(pass.arrays, factors, x)
        }

        fn download(&self, x: &Rows, rows: usize) -> Result<Vec<f32>> {
            x.get()?.narrow(0, 0, rows)?.flatten_all()?.to_vec1()
        }
    };
}
pub(super) use tensor_operations;

/// Appends `rank` columns to `x`: the rows of `product` to the listed rows, zeros to others.
pub(super) fn append(
    listed: &[u32],
    product: Option<Tensor>,
    rank: usize,
    x: &mut Rows,
) -> Result<()> {
    let narrow = x.get()?;
    let mut more = Tensor::zeros((narrow.dim(0)?, rank), DType::F32, narrow.device())?;
    if let Some(product) = product {
        let ids = Tensor::from_slice(listed, listed.len(), narrow.device())?;
        more = more.index_add(&ids, &product, 0)?;
    }
    let wide = Tensor::cat(&[narrow, &more], 1)?;
    x.write(|| Ok(wide))
}

/// The canvas fields of a pass's rows.
pub(super) fn rows<'a>(arrays: &BatchArrays<'a>) -> Result<CanvasRows<'a>> {
    match arrays.canvas {
        Some(canvas) => Ok(canvas),
        None => bail!("expected the rows of a canvas model"),
    }
}

/// Makes an array zero.
pub(super) fn clear(rows: usize, width: usize, x: &mut Rows) -> Result<()> {
    x.write(|| Tensor::zeros((rows, width), DType::F32, &Device::Cpu))
}

/// Overwrites an array with the mean embeddings of all rows.
pub(super) fn soft(arrays: &BatchArrays<'_>, width: usize, out: &mut Rows) -> Result<()> {
    let (soft, count) = (rows(arrays)?.soft, arrays.tokens.len());
    match soft.is_empty() {
        true => clear(count, width, out),
        false => out.write(|| Tensor::from_slice(soft, (count, width), &Device::Cpu)),
    }
}

/// Replaces rows of an array by those of `new`, in order.
pub(super) fn replace(rows: &[u32], new: &Tensor, x: &mut Rows) -> Result<()> {
    let old = x.get()?;
    let width = old.dim(1)?;
    let ids = Tensor::from_slice(rows, rows.len(), old.device())?;
    let ids = ids.unsqueeze(1)?.expand((rows.len(), width))?;
    old.scatter_set(&ids.contiguous()?, new, 0)
}

/// The listed rows of an array.
pub(super) fn listed(rows: &[u32], x: &Rows) -> Result<Tensor> {
    let x = x.get()?;
    x.index_select(&Tensor::from_slice(rows, rows.len(), x.device())?, 0)
}

/// Multiplies encoded rows by the first factor, denoised rows by the second.
pub(super) fn scale(
    arrays: &BatchArrays<'_>,
    [encoded, denoised]: [f32; 2],
    x: &mut Rows,
) -> Result<()> {
    let mut factors = vec![encoded; arrays.tokens.len()];
    for row in rows(arrays)?.denoised {
        if let Some(factor) = factors.get_mut(*row as usize) {
            *factor = denoised;
        }
    }
    let factors = Tensor::from_slice(&factors, (factors.len(), 1), &Device::Cpu)?;
    let scaled = x.get()?.broadcast_mul(&factors)?;
    x.write(|| Ok(scaled))
}

/// The logits `[r, v]` of a product: capped, then divided by each row's number.
pub(super) fn logits(product: Tensor, cap: Option<f32>, scales: Option<&[f32]>) -> Result<Tensor> {
    if cap.is_some() || scales.is_some() {
        product.inplace_op1(&Finish { cap, scales })?;
    }
    Ok(product)
}

/// The softmax of every row of logits `[r, v]`.
pub(super) fn probabilities(logits: &Tensor) -> Result<Tensor> {
    let largest = logits.max_keepdim(D::Minus1)?;
    let weights = logits.broadcast_sub(&largest)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}

/// Bans the tokens of logits `[r, v]` outside of their rows' sets of allowed tokens, in place.
pub(super) struct Restrict<'a>(pub(super) &'a Scorer<'a>);

impl InplaceOp1 for Restrict<'_> {
    fn name(&self) -> &'static str {
        "restrict"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (_, vocab) = layout.shape().dims2()?;
        let data = numbers_mut::<f32>(self.name(), storage, layout)?;
        for (row, logits) in self.0.rows.iter().zip(data.chunks_exact_mut(vocab)) {
            self.0.restrict(row, logits);
        }
        Ok(())
    }
}

/// Turns a product into logits in place.
struct Finish<'a> {
    cap: Option<f32>,
    scales: Option<&'a [f32]>,
}

impl InplaceOp1 for Finish<'_> {
    fn name(&self) -> &'static str {
        "logits"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, vocab) = layout.shape().dims2()?;
        let data = numbers_mut::<f32>(self.name(), storage, layout)?;
        if let Some(scales) = self.scales.filter(|scales| scales.len() != rows) {
            bail!("logits: {} scales for {rows} rows", scales.len());
        }
        let shared = Shared::new(data);
        parallel::for_rows(rows, rows * vocab, |range| {
            // SAFETY: tasks own disjoint rows.
            let data = unsafe { shared.slice(range.start * vocab, range.len() * vocab) };
            for (row, logits) in range.zip(data.chunks_exact_mut(vocab)) {
                let scale = self.scales.map_or(1.0, |scales| scales[row]);
                for x in logits {
                    *x = self.cap.map_or(*x, |cap| cap * (*x / cap).tanh()) / scale;
                }
            }
        });
        Ok(())
    }
}
