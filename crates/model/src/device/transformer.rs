//! The forward pass of a dense transformer on a device.

use crate::ModelInfo;
use kernels::device::{
    Array, AttentionScratch, Buffer, DeviceBatch, DeviceError, DeviceMatrix, DevicePool,
    DeviceRope, DeviceScores, HeadTransform, PoolLayer, Precision, RowNorm, RowSet, ScoredRows,
    embed, norm, split,
};
use std::ops::Range;

/// One layer.
pub(crate) struct DeviceBlock {
    pub(crate) attention_norm: Buffer,
    pub(crate) qkv: DeviceMatrix,
    pub(crate) head_norms: Option<Buffer>,
    pub(crate) out: DeviceMatrix,
    pub(crate) mlp_norm: Buffer,
    pub(crate) gate_up: DeviceMatrix,
    pub(crate) down: DeviceMatrix,
}

/// Embedding, layers, final norm, LM head.
pub(crate) struct DeviceTransformer {
    pub(crate) embedding: Array,
    pub(crate) rope: DeviceRope,
    pub(crate) blocks: Vec<DeviceBlock>,
    pub(crate) norm: Buffer,
    pub(crate) head: DeviceMatrix,
    pub(crate) eps: f32,
    pub(crate) precision: Precision,
}

/// Intermediate arrays of a pass, for a fixed number of rows.
pub(crate) struct Activations {
    /// The residual stream `[r, d]`, f32.
    x: Array,
    normed: Array,
    qkv: Array,
    q: Array,
    attended: Array,
    gated: Array,
}

/// A batch and the arrays of its pass.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) work: &'a Activations,
    pub(crate) batch: &'a DeviceBatch,
}

impl DeviceTransformer {
    /// The precision of the matrices.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// Allocates arrays for passes of up to `rows` rows.
    pub(crate) fn activations(
        &self,
        info: &ModelInfo,
        rows: usize,
    ) -> Result<Activations, DeviceError> {
        let (device, precision) = (self.embedding.device(), self.precision);
        let (d, inner) = (info.width, info.heads * info.head_width);
        let all = inner + 2 * info.groups * info.head_width;
        Ok(Activations {
            x: Array::new(device, Precision::F32, rows, d)?,
            normed: Array::padded(device, precision, rows, d)?,
            qkv: Array::new(device, Precision::F32, rows, all)?,
            q: Array::new(device, precision, rows, inner)?,
            attended: Array::padded(device, precision, rows, inner)?,
            gated: Array::padded(device, precision, rows, info.mlp_width)?,
        })
    }

    /// Runs all layers on the batch's rows.
    pub(crate) fn hidden(
        &self,
        work: &Activations,
        batch: &DeviceBatch,
        (pool, scratch): (&DevicePool, &mut AttentionScratch),
    ) -> Result<(), DeviceError> {
        let rows = batch.rows();
        if rows == 0 {
            return Ok(());
        }
        let all = RowSet::First(rows);
        embed(&self.embedding, batch, &work.x)?;
        for (number, block) in self.blocks.iter().enumerate() {
            let layer = PoolLayer {
                pool,
                layer: number,
            };
            let before = self.norm_with(&block.attention_norm);
            norm((&work.x, &all), batch, before, &work.normed)?;
            block.qkv.product(&work.normed, rows, &work.qkv)?;
            let heads = HeadTransform {
                rope: &self.rope,
                norm: block.head_norms.as_ref().map(|it| self.norm_with(it)),
            };
            split(&work.qkv, heads, batch, &work.q, layer)?;
            scratch.attend(&work.q, layer, batch, &work.attended)?;
            block.out.add_product(&work.attended, rows, &work.x)?;
            let before = self.norm_with(&block.mlp_norm);
            norm((&work.x, &all), batch, before, &work.normed)?;
            block.gate_up.product(&work.normed, rows, &work.gated)?;
            block.down.add_product(&work.gated, rows, &work.x)?;
        }
        Ok(())
    }

    fn norm_with<'a>(&self, weight: &'a Buffer) -> RowNorm<'a> {
        RowNorm {
            weight,
            eps: self.eps,
        }
    }

    /// Computes the records of all scored rows; `normed` is scratch space.
    pub(crate) fn score(
        &self,
        Pass { work, batch }: Pass<'_>,
        normed: &Array,
        scores: &DeviceScores,
        mask: u32,
    ) -> Result<(), DeviceError> {
        for from in (0..batch.scored()).step_by(DeviceScores::CHUNK) {
            let range = from..(from + DeviceScores::CHUNK).min(batch.scored());
            let row_set = RowSet::Scored(range.clone());
            norm(
                (&work.x, &row_set),
                batch,
                self.norm_with(&self.norm),
                normed,
            )?;
            scores.score(&self.head, normed, ScoredRows { batch, range }, mask)?;
        }
        Ok(())
    }

    /// Computes the logits of a range of the rows that the host scores, into the first rows of
    /// `logits`; `normed` is scratch space.
    pub(crate) fn logits(
        &self,
        Pass { work, batch }: Pass<'_>,
        range: Range<usize>,
        normed: &Array,
        logits: &Array,
    ) -> Result<(), DeviceError> {
        let rows = range.len();
        let row_set = RowSet::Hosted(range);
        norm(
            (&work.x, &row_set),
            batch,
            self.norm_with(&self.norm),
            normed,
        )?;
        self.head.product(normed, rows, logits)
    }
}
