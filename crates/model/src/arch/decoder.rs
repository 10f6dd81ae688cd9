//! The pre-norm transformer that all families share, on any backend.

use super::block::{Block, Mlp};
use super::network::Decoder;
use super::work::Work;
use candle_core::Result;
use kernels::{Backend, Experts, Head, Norm, Pass, Residual, ScoredRange, Storage, device::RowSet};

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
    /// final norm in `work`. Calls `goes_on` after each layer.
    pub(crate) fn hidden(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        work: &mut Work<B>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if backend.rows(pass) == 0 {
            return Ok(());
        }
        backend.embed(&self.embedding, pass, &mut work.x)?;
        self.condition(backend, pass, work)?;
        for number in 0..self.blocks.len() {
            self.layer(backend, pass, number, work)?;
            if let Some(drafter) = &self.drafter {
                drafter.tap(backend, pass, number, work)?;
            }
            goes_on()?;
        }
        self.drafter.as_ref().map_or(Ok(()), |drafter| drafter.write(backend, pass, work))
    }

    /// Adds a layer's results to the residual stream. The layer before a dense one leaves its norm.
    fn layer(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        number: usize,
        work: &mut Work<B>,
    ) -> Result<()> {
        let (rows, block) = (backend.rows(pass), &self.blocks[number]);
        if number == 0 || self.next_norm(number - 1).is_none() {
            let norm = self.norm(&block.attention_norm);
            work.norm(backend, pass, norm, &RowSet::First(rows))?;
        }
        self.attend(backend, pass, block, work)?;
        if block.sandwich.is_some() {
            return self.add_branches(backend, pass, block, work);
        }
        let norm = self.norm(&block.mlp_norm);
        let out = Residual { matrix: &block.out, x: &work.heads.attended, norm };
        backend.add_norm(pass, out, &mut work.x, &mut work.normed)?;
        match &block.mlp {
            Mlp::Dense([gate_up, down]) => {
                work.gate(backend, pass, gate_up, block.adapter.as_deref())?;
                match self.next_norm(number) {
                    Some(norm) => {
                        let down = Residual { matrix: down, x: &work.gated, norm };
                        backend.add_norm(pass, down, &mut work.x, &mut work.normed)
                    }
                    None => backend.linear_add(down, &work.gated, rows, &mut work.x),
                }
            }
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
