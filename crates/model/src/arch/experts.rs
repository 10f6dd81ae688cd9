//! The experts of a layer: their weights, how they are loaded, how they are run.

use super::block::{GatedMlp, Work};
use super::load::Loader;
use crate::LoadError;
use crate::config::{ExpertSpec, RouterSpec};
use crate::memory::floats;
use crate::router::{Choice, Router};
use candle_core::Result;
use kernels::{
    Backend, Epilogue, ExpertRows, Experts as Held, Numbers, Pass, Routing, Storage, Stored,
    WeightDtype,
};

/// A router, its experts, and the optional shared expert, which processes every row.
pub(super) struct Experts<S: Storage> {
    pub(super) router: Router,
    pub(super) held: Held<S>,
    pub(super) shared: Option<GatedMlp<S>>,
}

/// The experts that rows chose, by expert; `None` if the backend has them.
pub(super) type Choices = Option<Vec<Choice>>;

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
            work.add_shared(on, shared, rows)?;
        }
        self.add_chosen((on, pass), &choices, (&work.normed, rows), &mut work.x)
    }

    /// Chooses the experts of rows of `x`.
    pub(super) fn choose(
        &self,
        on: &B,
        pass: &Pass<'_, B>,
        x: (&B::Array, usize),
    ) -> Result<Choices> {
        match &self.held {
            Held::Each { gate, .. } => {
                let logits = on.route(gate, x)?;
                Ok(Some(self.router.choose(&logits, pass.arrays)))
            }
            Held::Grouped(experts) => on.choose(experts, pass, x).map(|()| None),
        }
    }

    /// Adds the experts that were chosen last, applied to rows of `x`, to the same rows of `sum`.
    pub(super) fn add_chosen(
        &self,
        (on, pass): (&B, &Pass<'_, B>),
        choices: &Choices,
        x: (&B::Array, usize),
        sum: &mut B::Array,
    ) -> Result<()> {
        let experts = match &self.held {
            Held::Each { experts, .. } => experts,
            Held::Grouped(experts) => return on.add_chosen(experts, pass, x, sum),
        };
        let choices = choices.iter().flatten();
        for (expert, Choice { rows, weights }) in experts.iter().zip(choices) {
            if !rows.is_empty() {
                on.expert(expert, x.0, ExpertRows { rows, weights }, sum)?;
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
        self.mixture(router, gate, experts, shared)
    }

    /// Experts with their router.
    pub(super) fn mixture(
        &mut self,
        router: Router,
        gate: S::Matrix,
        experts: Vec<GatedMlp<S>>,
        shared: Option<GatedMlp<S>>,
    ) -> std::result::Result<Experts<S>, LoadError> {
        let routing = Routing {
            chosen: router.spec.chosen,
            score: router.spec.score,
            bias: router.bias.as_deref(),
            scales: router.scales.as_deref(),
            shared: router.sharing.is_some(),
        };
        let held = self.storage.experts(gate, experts, routing);
        let held = held.map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Experts {
            router,
            held,
            shared,
        })
    }
}
