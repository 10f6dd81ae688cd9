//! Loads the experts of a layer.

use super::block::{Experts, GatedMlp};
use super::load::Loader;
use crate::LoadError;
use crate::config::{ExpertSpec, RouterSpec};
use crate::memory::floats;
use crate::router::Router;
use kernels::{Epilogue, Numbers, Routing, Storage, Stored, WeightDtype};

impl<S: Storage> Loader<'_, S> {
    /// The numbered experts of a layer.
    pub(super) fn experts(
        &mut self,
        number: usize,
        spec: &ExpertSpec,
    ) -> Result<Experts<S>, LoadError> {
        let (names, info) = (&self.names.experts, &self.spec.info);
        let layer = format!("{}.{number}", self.names.layers);
        let (name, bias) =
            (format!("{layer}.{}.weight", names.router), format!("{layer}.{}", names.bias));
        let gate = self.router_gate(&name, spec.count)?;
        let bias = match spec.router.bias {
            true => Some(self.weights.tensor(&bias, &[spec.count])?),
            false => None,
        };
        let block = match info.rows.attention {
            step::Attention::Blocks(length) => Some(length),
            _ => None,
        };
        let router = Router {
            bias,
            scales: None,
            spec: RouterSpec { block, ..spec.router },
            count: spec.count,
            sharing: self.weights.sharing,
        };
        let experts = (0..spec.count)
            .map(|i| self.gated(number, &format!("{}.{i}", names.experts), spec.width))
            .collect::<Result<_, _>>()?;
        let shared = match spec.shared {
            Some(width) => Some(self.gated(number, names.shared, width)?),
            None => None,
        };
        self.mixture(router, gate, experts, shared)
    }

    /// The matrix of a router of `count` experts, which computes in f32 for every dtype.
    pub(super) fn router_gate(&mut self, name: &str, count: usize) -> Result<S::Matrix, LoadError> {
        let shape = [count, self.spec.info.width];
        let numbers = self.weights.tensor(name, &shape)?;
        let gate = Stored {
            shape,
            numbers: Numbers::Floats(&numbers),
            bias: None,
            dtype: WeightDtype::F32,
            epilogue: Epilogue::None,
        };
        self.stored(name, gate, floats(shape[0].saturating_mul(shape[1])))
    }

    /// Experts with their router.
    pub(super) fn mixture(
        &mut self,
        router: Router,
        gate: S::Matrix,
        experts: Vec<GatedMlp<S>>,
        shared: Option<GatedMlp<S>>,
    ) -> Result<Experts<S>, LoadError> {
        let routing = Routing {
            chosen: router.spec.chosen,
            function: router.spec.function,
            bias: router.bias.as_deref(),
            scales: router.scales.as_deref(),
            shared: router.sharing.is_some(),
        };
        let stored = self.storage.experts(gate, experts, routing);
        let stored = stored.map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Experts { router, stored, shared })
    }
}
