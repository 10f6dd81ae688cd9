//! The experts of a layer: their weights, how they are loaded, how they are run.

use super::block::{GatedMlp, Work};
use super::load::Loader;
use crate::LoadError;
use crate::config::{ExpertSpec, RouterSpec};
use crate::memory::floats;
use crate::router::{Choice, Router};
use candle_core::Result;
use kernels::{Backend, Epilogue, ExpertRows, Numbers, Pass, Storage, Stored, WeightDtype};

/// A router, its experts, and the optional shared expert, which processes every row.
pub(super) struct Experts<S: Storage> {
    pub(super) gate: S::Matrix,
    pub(super) router: Router,
    pub(super) experts: Vec<GatedMlp<S>>,
    pub(super) shared: Option<GatedMlp<S>>,
}

impl<B: Backend> Experts<B> {
    /// Adds each row's experts to the residual stream. An expert runs once for all rows that chose it.
    /// A row's terms are added in the order of the experts' numbers, so its result does not depend on
    /// other rows.
    pub(super) fn add(
        &self,
        on: &B,
        pass: &Pass<'_, B>,
        work: &mut Work<B>,
        rows: usize,
    ) -> Result<()> {
        let choices = self.choose(on, pass, (&work.normed, rows))?;
        if let Some(shared) = &self.shared {
            work.add_mlp(on, shared, rows)?;
        }
        self.add_chosen(on, &choices, &work.normed, &mut work.x)
    }

    /// The rows and weights of every expert.
    pub(super) fn choose(
        &self,
        on: &B,
        pass: &Pass<'_, B>,
        x: (&B::Array, usize),
    ) -> Result<Vec<Choice>> {
        let logits = on.route(&self.gate, x)?;
        Ok(self.router.choose(&logits, pass.arrays))
    }

    /// Adds the experts of rows of `x` to the same rows of `sum`.
    pub(super) fn add_chosen(
        &self,
        on: &B,
        choices: &[Choice],
        x: &B::Array,
        sum: &mut B::Array,
    ) -> Result<()> {
        for (expert, Choice { rows, weights }) in self.experts.iter().zip(choices) {
            if !rows.is_empty() {
                on.expert(expert, x, ExpertRows { rows, weights }, sum)?;
            }
        }
        Ok(())
    }
}

impl<S: Storage> Loader<'_, S> {
    /// The numbered experts of a layer.
    pub(super) fn experts(
        &mut self,
        number: usize,
        spec: &ExpertSpec,
    ) -> std::result::Result<Experts<S>, LoadError> {
        let (names, info) = (&self.names.experts, &self.spec.info);
        let layer = format!("{}.{number}", self.names.layers);
        let (name, bias) = (
            format!("{layer}.{}.weight", names.router),
            format!("{layer}.{}", names.bias),
        );
        let shape = (spec.count, info.width);
        let gate = self.weights.tensor(&name, &[shape.0, shape.1])?;
        let bias = match spec.router.bias {
            true => Some(self.weights.tensor(&bias, &[spec.count])?),
            false => None,
        };
        // Routers compute in f32 for every dtype.
        let gate = Stored {
            shape,
            numbers: Numbers::Floats(&gate),
            bias: None,
            dtype: WeightDtype::F32,
            epilogue: Epilogue::None,
        };
        let gate = self.stored(&name, gate, floats(shape.0.saturating_mul(shape.1)))?;
        let block = match info.attention {
            step::Attention::Blocks(length) => Some(length),
            _ => None,
        };
        let router = Router {
            bias,
            scales: None,
            spec: RouterSpec {
                block,
                ..spec.router
            },
            count: spec.count,
            sharing: self.weights.sharing,
        };
        let experts = (0..spec.count)
            .map(|i| self.gated(number, &format!("{}.{i}", names.experts), spec.width))
            .collect::<std::result::Result<_, _>>()?;
        let shared = match spec.shared {
            Some(width) => Some(self.gated(number, names.shared, width)?),
            None => None,
        };
        Ok(Experts {
            gate,
            router,
            experts,
            shared,
        })
    }
}
