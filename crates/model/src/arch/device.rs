//! Loads a dense transformer onto a device, with the families and tensors of the CPU path.

use super::layer::Layer;
use super::load::own_head;
use super::names::Names;
use super::read;
use crate::config::{Keys, Spec};
use crate::device::{DeviceBlock, DeviceTransformer, Loader, precision};
use crate::layers::stacked;
use crate::weights::Weights;
use crate::{LoadError, ModelInfo};
use kernels::device::{Buffer, Device};
use kernels::{Epilogue, RopeTable};

/// Loads the architecture named in the configuration onto a device.
pub(crate) fn load_on(
    device: &Device,
    config: &Keys,
    weights: &mut Weights,
) -> Result<(DeviceTransformer, ModelInfo), LoadError> {
    let (spec, names) = read(config, weights)?;
    let precision = precision(&spec.info).map_err(LoadError::Setup)?;
    let loader = Loader {
        device,
        precision,
        weights,
    };
    let transformer = loader.transformer(&spec, names)?;
    Ok((transformer, spec.info))
}

impl Loader<'_> {
    fn transformer(mut self, spec: &Spec, names: &Names) -> Result<DeviceTransformer, LoadError> {
        let info = &spec.info;
        let table = RopeTable::new(spec.rope_theta, spec.rotary_width, info.max_positions);
        let name = format!("{}.weight", names.embedding);
        let numbers = self
            .weights
            .tensor(&name, &[info.embedding_size, info.width])?;
        let embedding = self.table(&numbers, info.width)?;
        let head = match info.tied {
            true => {
                // Some exports store the tied head too.
                self.weights.ignore(&format!("{}.weight", names.head));
                Some(self.matrix(&numbers[..info.vocab_size * info.width], info.width, None)?)
            }
            false => None,
        };
        drop(numbers);
        let layers = 0..info.layers;
        let blocks = layers.map(|number| {
            self.block(&Layer {
                spec,
                names,
                number,
            })
        });
        let blocks = blocks.collect::<Result<_, _>>()?;
        let norm = self.floats(names.norm, info.width)?;
        let head = match head {
            Some(head) => head,
            None => {
                let matrices = [own_head(spec, names)];
                let (all, bias) = stacked(self.weights, info.width, &matrices)?;
                let bias = bias.as_deref().map(|bias| &bias[..info.vocab_size]);
                self.matrix(&all[..info.vocab_size * info.width], info.width, bias)?
            }
        };
        Ok(DeviceTransformer {
            embedding,
            rope: self.rope(&table)?,
            blocks,
            norm,
            head,
            eps: spec.norm_eps,
            precision: self.precision,
        })
    }

    fn block(&mut self, layer: &Layer<'_>) -> Result<DeviceBlock, LoadError> {
        let (spec, names) = (layer.spec, layer.names);
        let info = &spec.info;
        let inner = info.heads * info.head_width;
        let [gate, up, down] = layer.gated_matrices(names.mlp, info.mlp_width);
        let head_norms = match spec.head_norms {
            true => Some(self.head_norms(layer)?),
            false => None,
        };
        Ok(DeviceBlock {
            attention_norm: self.floats(&layer.name(names.attention_norm), info.width)?,
            qkv: self.fused(info.width, &layer.qkv(), Epilogue::None)?,
            head_norms,
            out: self.fused(inner, &[layer.out()], Epilogue::None)?,
            mlp_norm: self.floats(&layer.name(names.mlp_norm), info.width)?,
            gate_up: self.fused(info.width, &[gate, up], Epilogue::SiluGate)?,
            down: self.fused(info.mlp_width, &[down], Epilogue::None)?,
        })
    }

    /// The norm weights of all query and key heads, one after another.
    fn head_norms(&mut self, layer: &Layer<'_>) -> Result<Buffer, LoadError> {
        let info = &layer.spec.info;
        let mut all = Vec::new();
        for (norm, count) in layer.names.head_norms.iter().zip([info.heads, info.groups]) {
            let name = format!("{}.weight", layer.name(norm));
            let one = self.weights.tensor(&name, &[info.head_width])?;
            all.extend(one.repeat(count));
        }
        self.numbers(&all)
    }
}
