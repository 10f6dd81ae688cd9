//! The names, shapes and types of a quantized matrix's tensors.

use safetensors::tensor::Dtype;

use super::super::shard::Shards;
use super::codes::{E4M3, E8M0, WORD};
use super::scheme::{Codes, MLX, MODELOPT, Scheme};
use crate::LoadError;

/// Tensors that multiply all scales of a matrix or of an expert.
const FACTORS: [&str; 3] = ["global_scale", "weight_scale_2", "weight_global_scale"];

impl Scheme {
    /// The shape and the type of the codes of a matrix `[rows, columns]`.
    pub(super) fn stored_codes(&self, [rows, columns]: [usize; 2]) -> ([usize; 2], Dtype) {
        let in_word = (WORD / self.bits()) as usize;
        match self.codes {
            Codes::Integers(_) => ([rows, columns], Dtype::I8),
            _ if self.method == MLX => {
                ([rows, columns.saturating_mul(self.bits() as usize) / WORD as usize], Dtype::U32)
            }
            Codes::Floats => ([rows, columns], Dtype::F8_E4M3),
            Codes::Nvfp4 | Codes::Mxfp4 => ([rows, columns.div_ceil(2)], Dtype::U8),
            Codes::Packed(_) | Codes::Stream(_) => ([rows, columns.div_ceil(in_word)], Dtype::I32),
            Codes::Gptq(_) => ([columns.div_ceil(in_word), rows], Dtype::I32),
            Codes::Awq => ([columns, rows / in_word], Dtype::I32),
        }
    }

    /// The numbers of scales of 8 bits, `None` if scales are plain numbers.
    pub(super) fn scale_numbers(&self) -> Option<&'static [f32; 256]> {
        match self.codes {
            Codes::Nvfp4 => Some(&E4M3),
            Codes::Mxfp4 => Some(&E8M0),
            Codes::Floats if self.method == MLX => Some(&E8M0),
            _ => None,
        }
    }
}

/// The name of the factor of 4-bit floats' scales.
pub(super) fn factor_name(scheme: &Scheme) -> &'static str {
    match scheme.method {
        MODELOPT => "weight_scale_2",
        _ => "weight_global_scale",
    }
}

/// The name of a module's scales.
pub(super) fn scale_name(scheme: &Scheme, shards: &Shards, module: &str) -> &'static str {
    match (scheme.is_transposed(), scheme.method) {
        (true, _) | (_, MLX) => "scales",
        // AutoFP8's name; DeepSeek's scales are named after the inverse of what a weight is divided by.
        (false, "fp8") if shards.dtype(&format!("{module}.weight_scale")).is_none() => {
            "weight_scale_inv"
        }
        _ => "weight_scale",
    }
}

/// Refuses a factor of the scales of 4-bit floats, without which their weights would be others.
///
/// # Errors
/// A factor that is stored beside the codes.
pub(super) fn refuse_factors(shards: &Shards, module: &str) -> Result<(), LoadError> {
    for part in FACTORS {
        let name = format!("{module}.{part}");
        if let Some((file, tensor)) = shards.first_place(&name) {
            return Err(LoadError::Tensor {
                file: file.to_owned(),
                tensor: tensor.to_owned(),
                expected: "scales without a factor".to_owned(),
                found: "a factor".to_owned(),
            });
        }
    }
    Ok(())
}
