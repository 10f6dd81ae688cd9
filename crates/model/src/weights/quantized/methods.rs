//! The methods of quantization, read from the configuration.

use serde_json::{Value, json};

use super::modules::Modules;
use super::scheme::{Codes, GROUPS, Gptq, Grid, MODELOPT, MOST_SCHEMES, Scheme};
use super::{Group, Quantization};
use crate::LoadError;
use crate::config::Keys;

/// The formats of compressed-tensors with a tensor `weight`.
const NAIVE: [&str; 3] = ["int-quantized", "float-quantized", "naive-quantized"];
/// The format of compressed-tensors with a tensor `weight_packed`.
const PACKED: &str = "pack-quantized";
/// The format of compressed-tensors with 4-bit floats.
const NVFP4: &str = "nvfp4-pack-quantized";
/// Model Optimizer's algorithms whose weights are codes and scales alone.
const ALGORITHMS: [&str; 5] =
    ["NVFP4", "W4A16_NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MIXED_PRECISION"];
/// Weights of a scale of NVFP4.
const NVFP4_GROUP: usize = 16;

/// Reads the object `quantization_config`, or another of its form; `default` is the method of one that names
/// none.
///
/// # Errors
/// An unknown method, or a setting that is not supported.
pub(super) fn read(config: &Keys, default: &str) -> Result<Quantization, LoadError> {
    match config.get("quant_method").map_or(Some(default), Value::as_str) {
        Some("compressed-tensors") => compressed_tensors(config),
        Some("fp8") => fp8(config),
        Some("gptq") => gptq(config),
        Some("awq") => awq(config),
        Some(MODELOPT) => modelopt(config, "ignore"),
        _ => {
            Err(config
                .refuse("quant_method", "one of compressed-tensors, fp8, gptq, awq, modelopt"))
        }
    }
}

/// A quantization with one scheme for all linear layers that are not excluded.
fn uniform(scheme: Scheme, targets: Modules, excluded: Modules) -> Quantization {
    Quantization {
        about: format!("{}, {}", scheme.method, scheme.about()),
        groups: vec![Group { targets, scheme: Some(scheme) }],
        excluded,
        is_complete: false,
        is_beside: false,
        by_type: false,
    }
}

/// GPTQ (arXiv 2210.17323) as AutoGPTQ and GPTQModel store it.
fn gptq(config: &Keys) -> Result<Quantization, LoadError> {
    let bits = bits(config, "bits", &[4, 8])?;
    let formats = ["checkpoint_format", "format"].into_iter().find(|key| config.get(key).is_some());
    let format = match formats {
        Some(key) => match config.get(key).and_then(Value::as_str) {
            Some(format @ ("gptq" | "gptq_v2")) => format,
            _ => return Err(config.refuse(key, r#""gptq" or "gptq_v2""#)),
        },
        None => "gptq",
    };
    config.only("is_marlin_format", &json!(false))?;
    config.only("pack_dtype", &json!("int32"))?;
    let mut excluded = Modules::of_parts(config, &["modules_to_not_convert"])?;
    // GPTQModel: exceptions by pattern; one with a minus is not quantized.
    if let Some(exceptions) = config.get("dynamic") {
        let patterns = exceptions.as_object().into_iter().flatten();
        let patterns = patterns.map(|(pattern, _)| pattern.strip_prefix("-:"));
        let patterns = patterns.collect::<Option<Vec<_>>>();
        let patterns = patterns.filter(|_| exceptions.is_object()).ok_or_else(|| {
            config.refuse("dynamic", r#"patterns after "-:", whose modules are not quantized"#)
        })?;
        for pattern in patterns {
            excluded.add_pattern(config, "dynamic", pattern)?;
        }
    }
    let listed = Modules::of_parts(config, &["modules_in_block_to_quantize"])?;
    let targets = match listed.is_empty() {
        true => Modules::linear(),
        false => listed,
    };
    let scheme = Scheme {
        codes: Codes::Gptq(Gptq {
            bits,
            one_less: format == "gptq",
            ordered: config.flag("desc_act", false)?,
        }),
        grid: group_size(config, "group_size")?,
        zeros: true,
        method: "gptq",
    };
    Ok(uniform(scheme, targets, excluded))
}

/// AWQ (arXiv 2306.00978) as AutoAWQ stores it.
fn awq(config: &Keys) -> Result<Quantization, LoadError> {
    let either = |keys: [&'static str; 2]| {
        keys.into_iter().find(|key| config.get(key).is_some()).unwrap_or(keys[0])
    };
    bits(config, either(["bits", "w_bit"]), &[4])?;
    let version = either(["version", "format"]);
    let is_gemm = |version: &Value| {
        version.as_str().is_some_and(|version| version.eq_ignore_ascii_case("gemm"))
    };
    if config.get(version).is_some_and(|version| !is_gemm(version)) {
        return Err(config.refuse(version, r#""gemm""#));
    }
    // Zero points are stored in any case, equal ones if they are not used.
    config.flag("zero_point", true)?;
    let scheme = Scheme {
        codes: Codes::Awq,
        grid: group_size(config, either(["group_size", "q_group_size"]))?,
        zeros: true,
        method: "awq",
    };
    let excluded = Modules::of_parts(config, &["modules_to_not_convert"])?;
    Ok(uniform(scheme, Modules::linear(), excluded))
}

/// 8-bit floats as DeepSeek and AutoFP8 store them.
fn fp8(config: &Keys) -> Result<Quantization, LoadError> {
    config.only("fmt", &json!("e4m3"))?;
    config.only("expert_dtype", &json!("fp8"))?;
    let scheme = Scheme {
        codes: Codes::Floats,
        grid: match config.get("weight_block_size") {
            Some(_) => block_size(config, "weight_block_size")?,
            None => Grid::Matrix,
        },
        zeros: false,
        method: "fp8",
    };
    let excluded = Modules::of_parts(config, &["modules_to_not_convert", "ignored_layers"])?;
    let inputs = match config.get("activation_scheme") {
        None => String::new(),
        Some(Value::String(scheme)) if matches!(&**scheme, "static" | "dynamic") => {
            format!("; its rounding of inputs is left out (FP8, {scheme})")
        }
        Some(_) => return Err(config.refuse("activation_scheme", r#""static" or "dynamic""#)),
    };
    let mut quantization = uniform(scheme, Modules::linear(), excluded);
    quantization.about += &inputs;
    Ok(quantization)
}

/// NVFP4 and FP8 as Model Optimizer exports them. A matrix is quantized if it is stored so; the list of excluded
/// modules, under the key `excluded`, serves the estimate of a model whose weights are not here.
pub(super) fn modelopt(config: &Keys, excluded: &str) -> Result<Quantization, LoadError> {
    let is_known = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|name| ALGORITHMS.contains(name)).is_some()
    };
    let layers = config.get("quantized_layers").and_then(Value::as_object);
    let algorithms =
        layers.into_iter().flatten().map(|(name, layer)| (name, layer.get("quant_algo")));
    let all = algorithms.clone().map(|(_, algorithm)| algorithm).chain([config.get("quant_algo")]);
    if !all.into_iter().all(is_known) {
        return Err(config.refuse("quant_algo", ALGORITHMS.join(", ")));
    }
    let name = config.get("quant_algo").and_then(Value::as_str).unwrap_or_default();
    let scheme = |codes, grid, names: &[&str]| {
        // Memory can be told before the download, from the configuration alone.
        let is_one = |found: Option<&Value>| {
            found.and_then(Value::as_str).is_some_and(|found| names.contains(&found))
        };
        let targets = match layers {
            Some(_) => Modules::named(
                algorithms.clone().filter(|(_, found)| is_one(*found)).map(|(name, _)| name),
            ),
            None if names.contains(&name) => Modules::linear(),
            None => Modules::default(),
        };
        let scheme = Scheme { codes, grid, zeros: false, method: MODELOPT };
        Group { targets, scheme: Some(scheme) }
    };
    Ok(Quantization {
        groups: vec![
            scheme(Codes::Nvfp4, Grid::Groups(NVFP4_GROUP), &["NVFP4", "W4A16_NVFP4"]),
            scheme(Codes::Floats, Grid::Matrix, &["FP8"]),
            scheme(Codes::Floats, Grid::Rows, &["FP8_PER_CHANNEL_PER_TOKEN"]),
        ],
        excluded: Modules::of_wildcards(config, excluded)?,
        is_complete: false,
        is_beside: false,
        by_type: true,
        about: match name {
            "W4A16_NVFP4" => format!("{MODELOPT}, {name}"),
            _ => format!("{MODELOPT}, {name}; its rounding of inputs is left out"),
        },
    })
}

/// The format of the library `compressed-tensors`.
fn compressed_tensors(config: &Keys) -> Result<Quantization, LoadError> {
    for key in ["transform_config", "sparsity_config"] {
        let is_plain = |value: &Value| {
            value["format"] == "dense" || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        if config.get(key).is_some_and(|value| !is_plain(value)) {
            return Err(config.refuse(key, "nothing"));
        }
    }
    let all = config.nested("config_groups")?;
    let names: Vec<String> = all.names().map(str::to_owned).collect();
    if names.is_empty() || names.len() > MOST_SCHEMES {
        return Err(config.refuse("config_groups", format!("1 to {MOST_SCHEMES} groups")));
    }
    let mut groups = Vec::new();
    let mut about = Vec::new();
    for name in &names {
        let group = all.nested(name)?;
        let holder = if group.get("format").is_some() { &group } else { config };
        let format = match holder.get("format").and_then(Value::as_str) {
            Some(format) if [PACKED, NVFP4].contains(&format) || NAIVE.contains(&format) => format,
            _ => {
                let formats = format!("{}, {PACKED}, {NVFP4}", NAIVE.join(", "));
                return Err(holder.refuse("format", formats));
            }
        };
        let scheme = match group.get("weights") {
            Some(_) if format == NVFP4 => Some(fours(&group.nested("weights")?)?),
            Some(_) => Some(weights(&group.nested("weights")?, format == PACKED)?),
            None => None,
        };
        about.extend(scheme.map(|scheme| format!("{format}, {}", scheme.about())));
        about.extend(inputs(&group)?);
        groups.push(Group { targets: Modules::of_names(&group, "targets")?, scheme });
    }
    if config.get("kv_cache_scheme").is_some() {
        about.push("keys and values are not rounded".to_owned());
    }
    Ok(Quantization {
        groups,
        excluded: Modules::of_names(config, "ignore")?,
        is_complete: true,
        is_beside: false,
        by_type: false,
        about: format!("compressed-tensors, {}", about.join("; ")),
    })
}

/// The scheme of the arguments `weights` of 4-bit floats.
fn fours(args: &Keys) -> Result<Scheme, LoadError> {
    args.only("type", &json!("float"))?;
    bits(args, "num_bits", &[4])?;
    args.only("symmetric", &json!(true))?;
    args.only("group_size", &json!(NVFP4_GROUP))?;
    let (codes, grid) = (Codes::Nvfp4, Grid::Groups(NVFP4_GROUP));
    Ok(Scheme { codes, grid, zeros: false, method: "compressed-tensors" })
}

/// The scheme of the arguments `weights` of compressed-tensors.
fn weights(args: &Keys, is_packed: bool) -> Result<Scheme, LoadError> {
    let is_float = match args.get("type").and_then(Value::as_str) {
        Some("float") if !is_packed => true,
        Some("int") => false,
        _ if is_packed => return Err(args.refuse("type", r#""int""#)),
        _ => return Err(args.refuse("type", r#""int" or "float""#)),
    };
    let bits = bits(args, "num_bits", if is_float { &[8] } else { &[4, 8] })?;
    let symmetric = args.flag("symmetric", true)?;
    if is_float && !symmetric {
        return Err(args.refuse("symmetric", "true for floats"));
    }
    args.only("dynamic", &json!(false))?;
    match args.get("actorder") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::String(order)) if matches!(&**order, "weight" | "static") => {}
        Some(_) => return Err(args.refuse("actorder", r#"null, "weight" or "static""#)),
    }
    let grid = match args.get("strategy").and_then(Value::as_str) {
        Some("tensor") => Grid::Matrix,
        Some("channel") => Grid::Rows,
        Some("group") => match group_size(args, "group_size")? {
            grid @ Grid::Groups(_) => grid,
            _ => return Err(args.refuse("group_size", "32, 64 or 128")),
        },
        Some("block") if !is_packed => block_size(args, "block_structure")?,
        None if args.get("group_size").is_some() => group_size(args, "group_size")?,
        None if args.get("strategy").is_none() => Grid::Matrix,
        _ => return Err(args.refuse("strategy", r#""tensor", "channel", "group" or "block""#)),
    };
    if is_packed && !symmetric && grid == Grid::Matrix {
        return Err(args.refuse("strategy", r#""channel" or "group" with zero points"#));
    }
    let codes = match (is_packed, is_float) {
        (true, _) => Codes::Packed(bits),
        (false, true) => Codes::Floats,
        (false, false) => Codes::Integers(bits),
    };
    Ok(Scheme { codes, grid, zeros: !symmetric, method: "compressed-tensors" })
}

/// The arguments of inputs, in words, `None` if they are not quantized.
fn inputs(group: &Keys) -> Result<Option<String>, LoadError> {
    let Some(_) = group.get("input_activations") else {
        return Ok(None);
    };
    let args = group.nested("input_activations")?;
    let bits = args.count("num_bits")?;
    let word = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or("plain").to_owned();
    let time = match args.get("dynamic") {
        None | Some(Value::Bool(false)) => "static",
        Some(_) => "dynamic",
    };
    Ok(Some(format!(
        "its rounding of inputs is left out ({} of {bits} bits, {time} per {})",
        word("type"),
        word("strategy")
    )))
}

/// One of these numbers of bits.
pub(super) fn bits(config: &Keys, key: &str, supported: &[u32]) -> Result<u32, LoadError> {
    let found = config.get(key).and_then(Value::as_u64);
    supported.iter().copied().find(|bits| found == Some(u64::from(*bits))).ok_or_else(|| {
        let supported: Vec<String> = supported.iter().map(u32::to_string).collect();
        config.refuse(key, supported.join(" or "))
    })
}

/// The size of a group; -1 stands for a row.
fn group_size(config: &Keys, key: &str) -> Result<Grid, LoadError> {
    match config.get(key).and_then(Value::as_i64) {
        Some(-1) => Ok(Grid::Rows),
        found => GROUPS
            .into_iter()
            .find(|size| found == Some(*size as i64))
            .map(Grid::Groups)
            .ok_or_else(|| config.refuse(key, "32, 64, 128 or -1")),
    }
}

/// Rows and columns of a block.
fn block_size(config: &Keys, key: &str) -> Result<Grid, LoadError> {
    let expected = "rows and columns of a block, 1 to 65536 each";
    let numbers = config.get(key).and_then(Value::as_array);
    let size = |value: &Value| {
        value.as_u64().filter(|size| (1..=65536).contains(size)).map(|size| size as usize)
    };
    match numbers.map(Vec::as_slice) {
        Some([rows, columns]) => match (size(rows), size(columns)) {
            (Some(rows), Some(columns)) => Ok(Grid::Blocks([rows, columns])),
            _ => Err(config.refuse(key, expected)),
        },
        _ => Err(config.refuse(key, expected)),
    }
}
