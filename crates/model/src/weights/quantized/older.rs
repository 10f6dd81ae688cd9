//! Quantizations that older tools describe in other places than the key `quantization_config`.

use super::{Quantization, methods};
use crate::LoadError;
use crate::config::Keys;
use crate::files::Files;

/// The key of older versions of compressed-tensors in `config.json`.
const COMPRESSION: &str = "compression_config";
/// The file of Model Optimizer, and the key of its settings.
const MODELOPT: [&str; 2] = ["hf_quant_config.json", "quantization"];
/// The files of AutoGPTQ and AutoAWQ, with the method of one that names none.
const FILES: [(&str, &str); 2] = [("quantize_config.json", "gptq"), ("quant_config.json", "awq")];
/// Keys of which a file of a quantization has one.
const SIGNS: [&str; 3] = ["quant_method", "bits", "w_bit"];

/// Reads the quantization of a checkpoint whose `config.json` has no `quantization_config`.
///
/// # Errors
/// A file that cannot be read, an unknown method, or a setting that is not supported.
pub(super) fn read(config: &Keys, files: &Files) -> Result<Option<Quantization>, LoadError> {
    if config.get(COMPRESSION).is_some() {
        return methods::read(&config.nested(COMPRESSION)?, "compressed-tensors").map(Some);
    }
    let beside = |quantization| Quantization { is_beside: true, ..quantization };
    let [name, key] = MODELOPT;
    if let Some(keys) = opened(files, name)?.filter(|keys| keys.get(key).is_some()) {
        return Ok(modelopt(&keys.nested(key)?)?.map(beside));
    }
    for (name, method) in FILES {
        let keys = opened(files, name)?;
        if let Some(keys) = keys.filter(|keys| SIGNS.iter().any(|key| keys.get(key).is_some())) {
            return methods::read(&keys, method).map(beside).map(Some);
        }
    }
    Ok(None)
}

/// The object in a file, `None` if there is no such file.
fn opened(files: &Files, name: &str) -> Result<Option<Keys>, LoadError> {
    match files.contains(name) {
        true => Keys::parse(name, &files.open(name)?).map(Some),
        false => Ok(None),
    }
}

/// The settings of Model Optimizer, `None` if they are those of keys and values alone.
fn modelopt(keys: &Keys) -> Result<Option<Quantization>, LoadError> {
    match ["quant_algo", "quantized_layers"].iter().any(|key| keys.get(key).is_some()) {
        true => methods::modelopt(keys, "exclude_modules").map(Some),
        false => Ok(None),
    }
}
