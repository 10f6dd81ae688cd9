//! Loads DiffusionGemma's experts, whose matrices are stored in one tensor for all, or one by one.

use super::block::{Experts, GatedMlp};
use super::load::Loader;
use super::source::Matrix;
use crate::LoadError;
use crate::config::ExpertSpec;
use crate::gguf::EXPERTS;
use crate::memory::floats;
use crate::router::Router;
use kernels::{Epilogue, Numbers, Storage, Stored, StoredVector};

impl<S: Storage> Loader<'_, S> {
    /// The norm of the router's input, which has a scale and the inverse root of the width.
    pub(super) fn router_norm(&mut self, number: usize) -> Result<S::Vector, LoadError> {
        let d = self.spec.info.width;
        let name = format!("{}.{number}.router.scale", self.names.layers);
        let mut scale = self.weights.tensor(&name, &[d])?;
        let root = 1.0 / (d as f32).sqrt();
        scale.iter_mut().for_each(|x| *x *= root);
        self.vector(StoredVector { count: d, numbers: &scale })
    }

    /// Experts whose matrices are stored in one tensor each for all gates and ups, and all downs, or one by one.
    pub(super) fn stacked_experts(
        &mut self,
        number: usize,
        spec: &ExpertSpec,
    ) -> Result<Experts<S>, LoadError> {
        let (d, count, width) = (self.spec.info.width, spec.count, spec.width);
        let prefix = format!("{}.{number}", self.names.layers);
        let gate = format!("{prefix}.{}.weight", self.names.experts.router);
        let gate = self.router_gate(&gate, count)?;
        let scales = format!("{prefix}.router.per_expert_scale");
        let scales = self.weights.tensor(&scales, &[count])?;
        let experts = match self.weights.is_gguf() {
            true => (0..count).map(|i| self.packed(number, i, width)).collect::<Result<_, _>>()?,
            false if let Some(experts) = self.separate(&prefix) => {
                let expert = |i| self.gated_at(&format!("{experts}.{i}"), width);
                (0..count).map(expert).collect::<Result<_, _>>()?
            }
            false => {
                // Places in the tensors of all experts.
                let expert = |i: usize| {
                    let name = |matrix: &str| format!("{prefix}.experts.{i}.{matrix}");
                    let gate_up = [2 * width, d];
                    let gate_up = self.part(&name("gate_up_proj"), gate_up, Epilogue::GeluGate)?;
                    let down = self.part(&name("down_proj"), [d, width], Epilogue::None)?;
                    Ok([gate_up, down])
                };
                (0..count).map(expert).collect::<Result<_, _>>()?
            }
        };
        let router = Router {
            bias: None,
            scales: Some(scales),
            spec: spec.router,
            count,
            sharing: self.weights.sharing,
        };
        self.mixture(router, gate, experts, None)
    }

    /// The prefix of numbered experts, as quantized checkpoints have them, if they are stored.
    fn separate(&self, prefix: &str) -> Option<String> {
        let mut names =
            ["experts", "moe.experts"].map(|name| format!("{prefix}.{name}")).into_iter();
        if self.weights.is_supposed_quantized() {
            return names.next();
        }
        names.find(|name| {
            let parts =
                ["weight", "weight_packed"].map(|part| format!("{name}.0.gate_proj.{part}"));
            parts.iter().any(|part| self.weights.stores(part))
        })
    }

    /// One expert of a GGUF file, whose blocks may be kept.
    fn packed(
        &mut self,
        number: usize,
        expert: usize,
        width: usize,
    ) -> Result<GatedMlp<S>, LoadError> {
        let d = self.spec.info.width;
        let matrix = |tensor: &str, rows: usize| Matrix {
            name: format!("blk.{number}.{EXPERTS}.{expert}.{tensor}"),
            rows,
            bias: false,
        };
        let gate_up = self.fused(d, &[matrix("ffn_gate_up", 2 * width)], Epilogue::GeluGate)?;
        let down = self.fused(width, &[matrix("ffn_down", d)], Epilogue::None)?;
        Ok([gate_up, down])
    }

    /// A matrix of one expert.
    fn part(
        &mut self,
        name: &str,
        shape: [usize; 2],
        epilogue: Epilogue,
    ) -> Result<S::Matrix, LoadError> {
        let numbers = self.weights.tensor(name, &shape)?;
        let matrix = Stored {
            shape,
            numbers: Numbers::Floats(&numbers),
            bias: None,
            dtype: self.weights.dtype,
            epilogue,
        };
        self.stored(name, matrix, floats(shape[0].saturating_mul(shape[1])))
    }
}
