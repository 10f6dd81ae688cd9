//! The forward pass of a dense transformer on a device.

use crate::ModelInfo;
use kernels::device::{
    Array, AttentionScratch, Buffer, DeviceBatch, DeviceError, DeviceMatrix, DevicePool,
    DeviceRope, DeviceScores, Precision, RowSet, embed, norm, split,
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
            let weight = (&block.attention_norm, self.eps);
            norm((&work.x, &all), batch, weight, &work.normed)?;
            block.qkv.product(&work.normed, rows, &work.qkv)?;
            let norms = block.head_norms.as_ref().map(|norms| (norms, self.eps));
            split(
                &work.qkv,
                (&self.rope, norms),
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

    /// Computes the records of all scored rows.
    pub(crate) fn score(
        &self,
        work: &Activations,
        batch: &DeviceBatch,
        (normed, scores): (&Array, &DeviceScores),
        mask: u32,
    ) -> Result<(), DeviceError> {
        for from in (0..batch.scored()).step_by(DeviceScores::CHUNK) {
            let range = from..(from + DeviceScores::CHUNK).min(batch.scored());
            let row_set = RowSet::Scored(range.clone());
            norm((&work.x, &row_set), batch, (&self.norm, self.eps), normed)?;
            scores.score(&self.head, normed, (batch, range), mask)?;
        }
        Ok(())
    }

    /// Computes the logits of a range of the rows that the host scores, into the first rows of
    /// `logits`.
    pub(crate) fn logits(
        &self,
        work: &Activations,
        batch: &DeviceBatch,
        range: Range<usize>,
        (normed, logits): (&Array, &Array),
    ) -> Result<(), DeviceError> {
        let rows = range.len();
        let row_set = RowSet::Hosted(range);
        norm((&work.x, &row_set), batch, (&self.norm, self.eps), normed)?;
        self.head.product(normed, rows, logits)
    }
}
