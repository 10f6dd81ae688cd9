//! The forward pass of a drafter, and what it keeps of its target's.

use super::arrays::ContextArrays;
use super::dflash::VAST;
use super::network::{Decoder, Drafter};
use super::work::Work;
use crate::ModelInfo;
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{Backend, Norm, Pass, Projection, Selection};

impl<B: Backend> Decoder<B> {
    /// The network of the rows of open blocks, and its sizes.
    pub(crate) fn drafter(&self) -> Option<(&Self, &ModelInfo)> {
        self.drafter.as_ref().map(|drafter| (&drafter.network, &drafter.info))
    }
}

impl<B: Backend> Drafter<B> {
    /// Adds the projected result of one of the target's layers, if the drafter reads it.
    pub(super) fn tap(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        layer: usize,
        work: &mut Work<B>,
    ) -> Result<()> {
        let Some(number) = self.taps.iter().position(|tap| tap.layer == layer) else {
            return Ok(());
        };
        let Some(ContextArrays { states, .. }) = &mut work.context else {
            bail!("the target of a drafter has arrays for its states");
        };
        let (rows, matrix) = (backend.rows(pass), &self.taps[number].matrix);
        let all = RowSet::First(rows);
        let from = Selection { array: &work.x, rows: &all };
        let unchanged = Norm { weight: &self.root, eps: VAST };
        backend.norm(from, pass, unchanged, &mut work.normed)?;
        match number {
            0 => backend.linear(matrix, &work.normed, rows, states),
            _ => backend.linear_add(matrix, &work.normed, rows, states),
        }
    }

    /// Writes the keys and values of the target's rows in all layers of the drafter.
    pub(super) fn write(&self, backend: &B, pass: &Pass<'_, B>, work: &mut Work<B>) -> Result<()> {
        let Some(ContextArrays { states, heads }) = &mut work.context else {
            bail!("the target of a drafter has arrays for its states");
        };
        let rows = backend.rows(pass);
        let all = RowSet::First(rows);
        let norm = self.network.norm(&self.context_norm);
        let input = Selection { array: &*states, rows: &all };
        backend.norm(input, pass, norm, &mut work.normed)?;
        for block in &self.network.blocks {
            let attention = self.network.attention(block);
            let projection =
                Projection { matrix: &block.qkv, x: &work.normed, attention: &attention };
            backend.project(pass, projection, &mut heads.qkv, &mut heads.q)?;
        }
        Ok(())
    }
}
