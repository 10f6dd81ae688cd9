//! Checkpoints that their publishers quantized: matrices are expanded to the numbers that the format's own
//! library expands them to.
//!
//! Every format stores codes, scales and, unless codes are symmetric, zero points. A weight is
//! `(code - zero) * scale`: the difference is exact, and the product is rounded to the scales' type. This
//! is the arithmetic of `compressed_tensors` (`_dequantize`), GPTQModel (`TorchLinear`), AutoAWQ
//! (`dequantize_gemm`), Model Optimizer (`NVFP4QTensor`) and, for FP8 in blocks, transformers
//! (`Fp8Dequantize`). The files of MLX have minimums in place of zero points (`mlx`).

mod codes;
mod kept;
mod matrix;
mod methods;
mod mlx;
mod modules;
mod older;
mod scheme;
mod stored;

use super::places::places;
use super::shard::{FLOATS, Shards};
use super::{Source, Weights};
use crate::LoadError;
use crate::config::Keys;
use crate::files::Files;
use matrix::QuantizedMatrix;
use modules::Modules;
pub(super) use modules::compiled;
use safetensors::tensor::Dtype;
use scheme::{MLX, Scheme};

/// The configuration's key.
const KEY: &str = "quantization_config";
/// The key of MLX.
const MLX_KEY: &str = "quantization";
/// Tensors of a module beside its codes.
const COMPANIONS: [&str; 19] = [
    "qweight",
    "qzeros",
    "scales",
    "biases",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "weight_scale_2",
    "weight_global_scale",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "input_scale",
    "activation_scale",
    "input_zero_point",
    "output_scale",
];

/// The quantization of a checkpoint, as its configuration states it.
pub(crate) struct Quantization {
    groups: Vec<Group>,
    /// Modules that are not quantized.
    excluded: Modules,
    /// True if the modules are listed completely; otherwise a matrix outside of the layers, such as the LM
    /// head, may be quantized or not.
    is_complete: bool,
    /// True if it stands in a file of its own, which may be left over beside plain weights.
    is_beside: bool,
    /// True if the stored type says whether a matrix is quantized, and how: the groups are those of 4-bit floats,
    /// and of 8-bit ones with a scale per matrix and per row.
    by_type: bool,
    /// The format in words: method, bits, and the weights that share a scale.
    pub(crate) about: String,
}

/// Modules that are quantized alike.
struct Group {
    targets: Modules,
    /// `None` if their weights are plain numbers.
    scheme: Option<Scheme>,
}

impl Quantization {
    /// The quantization in a configuration or in a file beside it, `None` without one.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown method, or a setting that is not supported.
    pub(crate) fn read(config: &Keys, files: &Files) -> Result<Option<Self>, LoadError> {
        match config.get(KEY) {
            _ if mlx::is_stated(config) => mlx::read(&config.nested(MLX_KEY)?).map(Some),
            Some(_) => methods::read(&config.nested(KEY)?, "").map(Some),
            None => older::read(config, files),
        }
    }

    /// True unless it is left over beside plain weights.
    pub(super) fn is_meant(&self, shards: &Shards) -> bool {
        !self.is_beside || shards.names().any(|name| Self::matrix(name).is_some())
    }

    /// True if matrices may be kept in blocks, by the settings.
    pub(crate) fn is_kept(&self) -> bool {
        let is_kept = |group: &Group| group.scheme.as_ref().is_some_and(Scheme::is_kept);
        self.groups
            .iter()
            .any(|group| is_kept(group) && (!self.by_type || !group.targets.is_empty()))
    }

    /// True if matrices of a file with tensors of these types may be kept in blocks.
    pub(super) fn is_kept_in(&self, mut sizes: impl Iterator<Item = (Dtype, u64)>) -> bool {
        match self.by_type {
            true => sizes.any(|(dtype, _)| [Dtype::U8, Dtype::F8_E4M3].contains(&dtype)),
            false => self.is_kept(),
        }
    }

    /// The number of weights in tensors of these types and bytes.
    pub(super) fn numbers(&self, sizes: impl Iterator<Item = (Dtype, u64)>) -> u64 {
        let bits = self.groups.iter().find_map(|group| group.scheme.as_ref().map(Scheme::bits));
        let bits = u64::from(bits.unwrap_or(8));
        let numbers = sizes.map(|(dtype, bytes)| match dtype {
            Dtype::I32 | Dtype::U32 => bytes * 8 / bits,
            Dtype::F32 => bytes / 4,
            Dtype::BF16 | Dtype::F16 => bytes / 2,
            Dtype::U8 => bytes * 2,
            _ => bytes,
        });
        numbers.sum()
    }

    /// The quantized tensors of the matrix `{module}.weight`, `None` if it is stored as plain numbers. The
    /// matrix of a linear layer must be stored as the configuration says.
    ///
    /// # Errors
    /// A tensor that is missing, or has another type or shape than the configuration implies.
    pub(super) fn find<'a>(
        &'a self,
        shards: &'a Shards,
        name: &str,
        shape: &[usize],
        is_linear: bool,
    ) -> Result<Option<QuantizedMatrix<'a>>, LoadError> {
        let (&[rows, columns], Some(module)) = (shape, name.strip_suffix(".weight")) else {
            return Ok(None);
        };
        let scheme = match self.by_type {
            true => self.stored_scheme(shards, module),
            false => self.scheme(module, is_linear),
        };
        let Some(scheme) = scheme else {
            return Ok(None);
        };
        let codes = shards.dtype(&format!("{module}.{}", scheme.tensor()));
        if codes.is_none_or(|dtype| FLOATS.contains(&dtype)) {
            let is_plain = shards.dtype(name).is_some_and(|dtype| FLOATS.contains(&dtype));
            // MLX leaves matrices plain that groups do not divide.
            let is_listed = self.is_complete || is_in_layer(module) && scheme.method != MLX;
            let is_required = is_linear && is_listed;
            if !is_required && (is_plain || !is_linear) {
                return Ok(None);
            }
        }
        QuantizedMatrix::find(scheme, shards, module, [rows, columns]).map(Some)
    }

    /// The scheme of a module. Names precede patterns, and both precede classes.
    fn scheme(&self, module: &str, is_linear: bool) -> Option<&Scheme> {
        // MLX names modules as their tensors are named.
        let names: Vec<String> = match self.is_mlx() {
            true => places(module).map(|place| place.name).collect(),
            false => vec![module.to_owned()],
        };
        let is_named = |targets: &Modules| names.iter().any(|name| targets.names(name));
        if self.excluded.contains(module, is_linear) || is_named(&self.excluded) {
            return None;
        }
        let first =
            |test: &dyn Fn(&Modules) -> bool| self.groups.iter().find(|group| test(&group.targets));
        let group = first(&is_named)
            .or_else(|| first(&|targets| targets.matches(module)))
            .or_else(|| first(&|targets| targets.covers(is_linear)));
        group?.scheme.as_ref()
    }

    /// The scheme of a module by the type of its codes.
    fn stored_scheme(&self, shards: &Shards, module: &str) -> Option<&Scheme> {
        let scales = shards.shape(&format!("{module}.weight_scale"));
        let is_whole = scales.is_some_and(|shape| shape.is_empty() || shape == [1]);
        let number = match shards.dtype(&format!("{module}.weight"))? {
            Dtype::U8 => 0,
            Dtype::F8_E4M3 if is_whole => 1,
            Dtype::F8_E4M3 => 2,
            _ => return None,
        };
        self.groups.get(number)?.scheme.as_ref()
    }

    /// The names that packed codes of a matrix have, if not its own.
    pub(super) fn packed(matrix: &str) -> [String; 2] {
        let module = matrix.strip_suffix("weight").unwrap_or(matrix);
        ["qweight", "weight_packed"].map(|part| format!("{module}{part}"))
    }

    /// The matrix that a tensor is stored beside, such as a scale; `None` for other tensors.
    pub(super) fn matrix(tensor: &str) -> Option<String> {
        let (module, part) = tensor.rsplit_once('.')?;
        COMPANIONS.contains(&part).then(|| format!("{module}.weight"))
    }
}

impl Weights {
    /// The publisher's quantization of safetensors files.
    pub(crate) fn quantization(&self) -> Option<&Quantization> {
        match &self.source {
            Source::Shards { quantization, .. } | Source::Random { quantization, .. } => {
                quantization.as_ref()
            }
            Source::Gguf(_) => None,
        }
    }
}

/// True for a module with a number in its name, as those of layers have.
fn is_in_layer(module: &str) -> bool {
    module.split('.').any(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
