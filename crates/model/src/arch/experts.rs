//! The experts of a layer and how they are run.

use super::block::Experts;
use super::work::Work;
use crate::router::Choice;
use candle_core::Result;
use kernels::{Backend, ExpertRows, Experts as StoredExperts, Mixture, Pass};

/// The experts that the first rows of an array chose.
pub(super) struct Chosen<'a, 'p, B: Backend> {
    pass: &'a Pass<'p, B>,
    rows: usize,
    /// By expert; `None` if the backend has them.
    choices: Option<Vec<Choice>>,
}

impl<B: Backend> Experts<B> {
    /// Adds each row's experts to the residual stream. An expert runs once for all rows that chose it.
    /// A row's terms are added in the order of the experts' numbers, so its result does not depend on
    /// other rows.
    pub(super) fn add(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        work: &mut Work<B>,
        rows: usize,
    ) -> Result<()> {
        let chosen = self.choose(backend, pass, &work.normed, rows)?;
        if let Some(shared) = &self.shared {
            work.add_shared(backend, shared, rows)?;
        }
        self.add_chosen(backend, &chosen, &work.normed, &mut work.x)
    }

    /// Chooses the experts of rows of `x`.
    pub(super) fn choose<'a, 'p>(
        &self,
        backend: &B,
        pass: &'a Pass<'p, B>,
        x: &B::Array,
        rows: usize,
    ) -> Result<Chosen<'a, 'p, B>> {
        let choices = match &self.stored {
            StoredExperts::Each { gate, .. } => {
                let logits = backend.route(gate, x)?;
                Some(self.router.choose(&logits, pass.arrays))
            }
            StoredExperts::Grouped(experts) => {
                backend.choose(experts, pass, x, rows)?;
                None
            }
        };
        Ok(Chosen { pass, rows, choices })
    }

    /// Adds the experts that were chosen last, applied to the same rows of `x`, to those of `sum`.
    pub(super) fn add_chosen(
        &self,
        backend: &B,
        chosen: &Chosen<'_, '_, B>,
        x: &B::Array,
        sum: &mut B::Array,
    ) -> Result<()> {
        let pass = chosen.pass;
        let experts = match &self.stored {
            StoredExperts::Each { experts, .. } => experts,
            StoredExperts::Grouped(experts) => {
                return backend.add_chosen(Mixture { experts, pass }, x, chosen.rows, sum);
            }
        };
        let choices = chosen.choices.iter().flatten();
        for (expert, Choice { rows, weights }) in experts.iter().zip(choices) {
            if !rows.is_empty() {
                backend.expert(expert, x, ExpertRows { rows, weights }, sum)?;
            }
        }
        Ok(())
    }
}
