//! The pre-norm transformer that all families share, on any backend.

use super::block::{Block, CanvasParts, Mlp};
use super::dflash::Drafter;
use super::work::Work;
use candle_core::Result;
use kernels::device::RowSet;
use kernels::{Backend, Experts, Head, Norm, Pass, ScoredRange, Storage};
use std::sync::Arc;

/// The stored weights of a transformer: embedding, layers, final norm, LM head.
pub(crate) struct Decoder<S: Storage> {
    /// Model width `d`.
    pub(super) width: usize,
    pub(super) eps: f32,
    pub(super) embedding: Arc<S::Table>,
    pub(super) rope_table: S::RopeTable,
    pub(super) blocks: Vec<Block<S>>,
    pub(super) norm: S::Vector,
    pub(super) head: Arc<S::Matrix>,
    /// The additional properties of a canvas model.
    pub(super) canvas: Option<CanvasParts<S>>,
    /// A drafter, which reads the rows of open blocks.
    pub(super) drafter: Option<Box<Drafter<S>>>,
}

impl<S: Storage> Decoder<S> {
    /// The experts of all layers that are run at once.
    pub(crate) fn grouped(&self) -> impl Iterator<Item = &S::Grouped> {
        let layers = self.blocks.iter().filter_map(Block::experts);
        layers.filter_map(|experts| match &experts.stored {
            Experts::Grouped(grouped) => Some(grouped),
            Experts::Each { .. } => None,
        })
    }
}

impl<B: Backend> Decoder<B> {
    /// Runs all layers on a batch and writes its keys and values. Leaves the hidden states before the
    /// final norm in `work`.
    pub(crate) fn hidden(&self, backend: &B, pass: &Pass<'_, B>, work: &mut Work<B>) -> Result<()> {
        let rows = backend.rows(pass);
        if rows == 0 {
            return Ok(());
        }
        backend.embed(&self.embedding, pass, &mut work.x)?;
        self.condition(backend, pass, work)?;
        for (number, block) in self.blocks.iter().enumerate() {
            self.layer(backend, pass, block, work)?;
            if let Some(drafter) = &self.drafter {
                drafter.tap(backend, pass, number, work)?;
            }
        }
        match &self.drafter {
            Some(drafter) => drafter.write(backend, pass, work),
            None => Ok(()),
        }
    }

    /// Adds a layer's results to the residual stream.
    fn layer(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        block: &Block<B>,
        work: &mut Work<B>,
    ) -> Result<()> {
        let rows = backend.rows(pass);
        let all = RowSet::First(rows);
        let norm = self.norm(&block.attention_norm);
        work.norm(backend, pass, norm, &all)?;
        self.attend(backend, pass, block, work)?;
        if block.sandwich.is_some() {
            return self.add_branches(backend, pass, block, work);
        }
        backend.linear_add(&block.out, &work.heads.attended, rows, &mut work.x)?;
        let norm = self.norm(&block.mlp_norm);
        work.norm(backend, pass, norm, &all)?;
        match &block.mlp {
            Mlp::Dense(mlp) => work.add_mlp(backend, pass, mlp, block.adapter.as_deref()),
            Mlp::Experts(experts) => experts.add(backend, pass, work, rows),
        }
    }

    /// Scores the batch's scored rows after [`Self::hidden`].
    pub(crate) fn score(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        work: &mut Work<B>,
        scores: &mut B::Scores,
    ) -> Result<()> {
        let count = backend.scored(pass);
        for start in (0..count).step_by(B::CHUNK) {
            let range = start..(start + B::CHUNK).min(count);
            let normed = self.normed(backend, pass, work, &RowSet::Scored(range.clone()))?;
            let rows = ScoredRange { pass, range };
            backend.score(&self.scoring_head(), normed, rows, scores)?;
        }
        Ok(())
    }

    /// A set of rows after the final norm, ready for the LM head, after [`Self::hidden`].
    pub(crate) fn normed<'a>(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        work: &'a mut Work<B>,
        rows: &RowSet,
    ) -> Result<&'a B::Array> {
        work.norm(backend, pass, self.norm(&self.norm), rows)?;
        Ok(&work.normed)
    }

    /// The LM head.
    pub(crate) fn head(&self) -> &B::Matrix {
        &self.head
    }

    /// The LM head with what follows its product.
    fn scoring_head(&self) -> Head<'_, B> {
        Head { matrix: &self.head, cap: self.cap(), soft: self.soft() }
    }

    /// The table that mean embeddings are made with, if the model has them.
    pub(crate) fn soft(&self) -> Option<&B::Matrix> {
        self.canvas.as_ref().map(|parts| &parts.soft)
    }

    /// The cap of the logits, if they have one.
    pub(crate) fn cap(&self) -> Option<f32> {
        self.canvas.as_ref()?.cap
    }

    pub(super) fn norm<'a>(&self, weight: &'a B::Vector) -> Norm<'a, B> {
        Norm { weight, eps: self.eps }
    }
}
