//! Checkpoints that their publishers quantized. `fixtures/quantized.py` generates them.

use crate::canvas;
use crate::common::{Named, Noise, execute, load, refusal, row, single, sized};
use crate::official;
use crate::survey::automatic;
use asynclane_model::{Candle, Checkpoint, Files, Model, WeightDtype};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/quantized");
const MASK: u32 = 5;

/// Type, shape and bytes.
pub type Tensor = (Dtype, Vec<usize>, Vec<u8>);

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

pub fn folder(case: &str) -> PathBuf {
    Path::new(CASES).join(case)
}

pub fn tensors(file: &[u8]) -> Tensors {
    let file = SafeTensors::deserialize(file).unwrap();
    let all = file.iter().map(|(name, tensor)| {
        let parts = (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec());
        (name.to_owned(), parts)
    });
    all.collect()
}

pub fn serialized(tensors: &Tensors) -> Vec<u8> {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

/// The configuration and the tensors of a case.
pub fn parts(case: &str) -> (Value, Tensors) {
    let folder = folder(case);
    (official::config(&folder), tensors(&std::fs::read(folder.join("model.safetensors")).unwrap()))
}

pub fn files(config: &Value, tensors: &Tensors) -> Named {
    let files = [
        ("config.json", config.to_string().into_bytes()),
        ("model.safetensors", serialized(tensors)),
    ];
    files.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

pub fn quantized(case: &str) -> Checkpoint {
    Checkpoint::open(&Files::folder(folder(case))).unwrap()
}

/// The same with the plain weights that the format's library expands it to.
pub fn plain(case: &str) -> Checkpoint {
    let (mut config, mut all) = parts(case);
    config.as_object_mut().unwrap().retain(|key, _| !key.starts_with("quantization"));
    let expanded = std::fs::read(folder(case).join("expanded.safetensors")).unwrap();
    all.extend(tensors(&expanded));
    Checkpoint::open(&Files::memory(files(&config, &all))).unwrap()
}

/// The same with scales and minimums of bf16 in f32.
fn with_scales_in_f32(case: &str) -> Checkpoint {
    let (config, mut all) = parts(case);
    for (name, (dtype, _, bytes)) in &mut all {
        if [".scales", ".biases"].iter().any(|end| name.ends_with(end)) && *dtype == Dtype::BF16 {
            *dtype = Dtype::F32;
            *bytes =
                bytes.as_chunks().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect();
        }
    }
    Checkpoint::open(&Files::memory(files(&config, &all))).unwrap()
}

/// Commits eight masks after a prompt, the most probable one first, and returns the tokens and the bits of
/// all probabilities.
pub fn generated(model: Model) -> (Vec<u32>, Vec<u64>) {
    let mut executor = sized(model, 4, 1);
    let mut tokens = [vec![3, 14, 15, 9, 2, 6], vec![MASK; 8]].concat();
    let end = tokens.len() as u32;
    let mut probabilities = Vec::new();
    while tokens.contains(&MASK) {
        let rows = tokens.iter().zip(0..).map(|(token, position)| row(*token, position, end));
        let output = execute(&mut executor, &single(rows.collect(), &[0, 1]));
        let candidates = output.candidates;
        assert_eq!(candidates.len(), tokens.len());
        let open = (0..tokens.len()).filter(|position| tokens[*position] == MASK);
        let best =
            open.max_by(|a, b| candidates[*a].probability.total_cmp(&candidates[*b].probability));
        let best = best.unwrap();
        tokens[best] = candidates[best].token;
        probabilities.extend(candidates.iter().map(|candidate| candidate.probability.to_bits()));
    }
    (tokens, probabilities)
}

#[test]
fn a_generation_is_that_of_the_expanded_checkpoint() {
    for entry in std::fs::read_dir(CASES).unwrap() {
        let case = entry.unwrap().file_name().into_string().unwrap();
        for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int4] {
            let load = |checkpoint: Checkpoint| Model::load(checkpoint.with_dtype(dtype)).unwrap();
            let (stored, expanded) = (load(quantized(&case)), load(plain(&case)));
            let none: [&str; 0] = [];
            assert_eq!(stored.warnings(), none, "{case}");
            assert_eq!(stored.info(), expanded.info(), "{case}");
            assert_eq!(generated(stored), generated(expanded), "{case} {dtype:?}");
        }
    }
}

#[test]
fn codes_are_kept_by_themselves() {
    for (case, dtype) in [("gptq", "I32"), ("deepseek", "F8_E4M3")] {
        let (config, all) = parts(case);
        let dtype = automatic(&config, &serialized(&all), dtype, 1 << 20);
        assert_eq!(dtype, WeightDtype::Blocks, "{case}");
    }
    // Blocks of 40 columns are not whole ones of 32.
    let (config, all) = parts("fp8-blocks");
    let dtype = |bytes| automatic(&config, &serialized(&all), "F8_E4M3", bytes);
    // 512 MiB in bf16.
    assert_eq!(dtype(256 << 20), WeightDtype::Bf16);
    assert_eq!(dtype(255 << 20), WeightDtype::F32);
}

/// Cases of MLX whose matrices are kept.
const MLX: [&str; 6] = ["mlx", "mlx-2", "mlx-5", "mlx-6", "mlx-8", "mlx-mxfp4"];

#[test]
fn kept_codes_have_the_logits_of_the_expanded_numbers() {
    let tokens = [3, 14, 15, 9, 2, 6, 5, 5, 5, 5];
    let cases = ["awq", "gptq", "gptq-8-symmetric", "int8", "packed-4", "packed-4-zeros"];
    for case in cases.into_iter().chain(["nvfp4", "modelopt", "modelopt-mixed"]).chain(MLX) {
        let load =
            |checkpoint: Checkpoint, dtype| Model::load(checkpoint.with_dtype(dtype)).unwrap();
        let kept = load(quantized(case), WeightDtype::Blocks);
        assert_eq!(kept.info().formats.matrices, WeightDtype::Blocks, "{case}");
        // MLX also rounds the products of codes and scales, which kept ones are not.
        let expanded = match case.starts_with("mlx") {
            true => load(with_scales_in_f32(case), WeightDtype::F32),
            false => load(plain(case), WeightDtype::F32),
        };
        let vocab = kept.info().vocabulary.size;
        let (got, want) = (kept.logits(&tokens).unwrap(), expanded.logits(&tokens).unwrap());
        let off = official::error(&got, &want, vocab);
        // Activations are rounded to 8 bits in groups of 32.
        assert!(off > 1e-5 && off < 0.2, "{case}: {off:.1e}");
        let checkpoint = quantized(case).with_dtype(WeightDtype::Blocks);
        let candle = Model::load_on(Candle::default(), checkpoint).unwrap();
        let off = official::error(&candle.logits(&tokens).unwrap(), &want, vocab);
        // Products of scales and codes are not rounded to the scales' type.
        assert!(off < 0.03, "{case} on candle: {off:.1e}");
    }
}

#[test]
fn kept_8_bit_floats_have_the_bits_of_the_expanded_numbers_in_bf16() {
    let tokens = [3, 14, 15, 9, 2, 6, 5, 5, 5, 5];
    for case in ["autofp8", "fp8-channel", "fp8-tensor"] {
        let logits = |checkpoint: Checkpoint, dtype| {
            let model = Model::load(checkpoint.with_dtype(dtype)).unwrap();
            let logits = model.logits(&tokens).unwrap();
            (
                model.info().formats.matrices,
                logits.into_iter().map(f32::to_bits).collect::<Vec<_>>(),
            )
        };
        let (dtype, kept) = logits(quantized(case), WeightDtype::Blocks);
        assert_eq!(dtype, WeightDtype::Blocks, "{case}");
        assert!(kept == logits(plain(case), WeightDtype::Bf16).1, "{case}");
    }
}

#[test]
fn kept_8_bit_floats_are_finite() {
    let (config, mut all) = parts("deepseek");
    let load = |all: &Tensors| {
        let checkpoint = Checkpoint::open(&Files::memory(files(&config, all))).unwrap();
        Model::load(checkpoint.with_dtype(WeightDtype::Blocks)).map(drop)
    };
    load(&all).unwrap();
    all.get_mut(&format!("{Q}.weight")).unwrap().2[1] = 0x7F;
    let error = load(&all).unwrap_err().to_string();
    assert!(error.ends_with("expected finite numbers, found NaN at element 1"), "{error}");
}

#[test]
fn a_survey_knows_the_memory_and_the_callback_counts_every_byte() {
    for case in [
        "int8",
        "packed-4-zeros",
        "deepseek",
        "gptq-ordered",
        "awq",
        "nvfp4",
        "modelopt",
        "mlx",
        "mlx-mixed",
    ] {
        let read = std::sync::Arc::new(std::sync::Mutex::new(0));
        let seen = read.clone();
        let kept = Model::load(quantized(case).with_dtype(WeightDtype::Blocks)).unwrap();
        let survey = quantized(case).survey(WeightDtype::Blocks).unwrap();
        assert_eq!(kept.memory(), survey.memory, "{case}");
        let checkpoint = quantized(case).with_watch(move |bytes| *seen.lock().unwrap() += bytes);
        let mut checkpoint = checkpoint.with_dtype(WeightDtype::Int8);
        let survey = checkpoint.survey(WeightDtype::Int8).unwrap();
        let stored = checkpoint.stored_bytes();
        let model = Model::load(checkpoint).unwrap();
        assert_eq!(model.memory(), survey.memory, "{case}");
        assert_eq!(
            survey.memory.weights,
            plain(case).survey(WeightDtype::Int8).unwrap().memory.weights
        );
        let read = *read.lock().unwrap();
        // The shapes of packed matrices are not weights.
        assert!(read <= stored && stored - read <= 7 * 16 * 2, "{case}: {read} of {stored}");
    }
}

/// Case and description.
const ABOUT: &str = "
int8 | compressed-tensors, int-quantized, 8 bits, a scale per row; its rounding of inputs is left out (int of 8 bits, dynamic per token)
fp8-tensor | compressed-tensors, float-quantized, FP8 E4M3, a scale per matrix; its rounding of inputs is left out (float of 8 bits, static per tensor)
packed-4 | compressed-tensors, pack-quantized, 4 bits, groups of 32
deepseek | fp8, FP8 E4M3, blocks of 32 x 32; its rounding of inputs is left out (FP8, dynamic)
gptq-rows | gptq, 4 bits, a scale per row
awq-64 | awq, 4 bits, groups of 64
nvfp4 | compressed-tensors, nvfp4-pack-quantized, NVFP4, groups of 16; its rounding of inputs is left out (float of 4 bits, dynamic per tensor_group)
modelopt | modelopt, NVFP4; its rounding of inputs is left out
mlx | mlx, 4 bits, groups of 64
mlx-mixed | mlx, 6 bits, groups of 64; some modules otherwise
mlx-mxfp4 | mlx, MXFP4, groups of 32
mlx-mxfp8 | mlx, MXFP8, groups of 32
mlx-nvfp4 | mlx, NVFP4, groups of 16
";

#[test]
fn the_format_is_described() {
    for line in ABOUT.trim().lines() {
        let (case, about) = line.split_once(" | ").unwrap();
        assert_eq!(quantized(case).quantization().as_deref(), Some(about));
    }
    assert_eq!(plain("int8").quantization(), None);
    // By the configuration alone, where zero points may differ.
    for case in ["gptq", "nvfp4", "modelopt", "mlx"] {
        let config = official::config(&folder(case)).to_string();
        let mut planned = Checkpoint::planned(&config).unwrap();
        assert_eq!(planned.quantization(), quantized(case).quantization());
        let planned = planned.survey(WeightDtype::Blocks).unwrap();
        let read = quantized(case).survey(WeightDtype::Blocks).unwrap();
        assert_eq!(planned.info.formats.matrices, WeightDtype::Blocks);
        let weights = [planned.memory.weights, read.memory.weights];
        assert!(weights[0] >= weights[1] && weights[0] < weights[1] * 5 / 4, "{case}: {weights:?}");
    }
}

/// Case, pointer into the configuration, value, and the end of the error.
const SETTINGS: &str = r#"
gptq | - | {"bits":4} | quant_method: expected one of compressed-tensors, fp8, gptq, awq, modelopt, found nothing
gptq | - | 4 | expected an object, found 4
gptq | quant_method | "bitsandbytes" | quant_method: expected one of compressed-tensors, fp8, gptq, awq, modelopt, found "bitsandbytes"
gptq | bits | 3 | bits: expected 4 or 8, found 3
gptq | group_size | 48 | group_size: expected 32, 64, 128 or -1, found 48
gptq | checkpoint_format | "marlin" | checkpoint_format: expected "gptq" or "gptq_v2", found "marlin"
gptq | desc_act | "yes" | desc_act: expected true or false, found "yes"
gptq | dynamic | {"+:.*down.*":{"bits":8}} | dynamic: expected patterns after "-:", whose modules are not quantized, found {"+:.*down.*":{"bits":8}}
awq | bits | 8 | bits: expected 4, found 8
awq | version | "gemv" | version: expected "gemm", found "gemv"
deepseek | weight_block_size | [128] | weight_block_size: expected rows and columns of a block, 1 to 65536 each, found [128]
deepseek | weight_block_size | [0,128] | weight_block_size: expected rows and columns of a block, 1 to 65536 each, found [0,128]
deepseek | activation_scheme | "none" | activation_scheme: expected "static" or "dynamic", found "none"
int8 | sparsity_config | {"format":"sparse-24-bitmask"} | sparsity_config: expected nothing, found {"format":"sparse-24-bitmask"}
int8 | config_groups | {} | config_groups: expected 1 to 16 groups, found {}
int8 | config_groups | {"W8A8":["Linear"]} | config_groups: W8A8: expected an object, found ["Linear"]
int8 | ignore | ["re:(?!x)"] | ignore: expected a pattern without look-around and back-references (look-around, including look-ahead and look-behind, is not supported), found ["re:(?!x)"]
int8 | ignore | "lm_head" | ignore: expected a list of names, found "lm_head"
packed-4 | config_groups/group_0/format | "mxfp4-pack-quantized" | config_groups: group_0: format: expected int-quantized, float-quantized, naive-quantized, pack-quantized, nvfp4-pack-quantized, found "mxfp4-pack-quantized"
nvfp4 | config_groups/group_0/weights/group_size | 32 | config_groups: group_0: weights: group_size: expected 16, found 32
nvfp4 | config_groups/group_0/weights/num_bits | 8 | config_groups: group_0: weights: num_bits: expected 4, found 8
modelopt | quant_algo | "NVFP4_AWQ" | quant_algo: expected NVFP4, W4A16_NVFP4, FP8, FP8_PER_CHANNEL_PER_TOKEN, MIXED_PRECISION, found "NVFP4_AWQ"
packed-4 | config_groups/group_0/weights/num_bits | 3 | config_groups: group_0: weights: num_bits: expected 4 or 8, found 3
packed-4 | config_groups/group_0/weights/type | "float" | config_groups: group_0: weights: type: expected "int", found "float"
packed-4 | config_groups/group_0/weights/group_size | 16 | config_groups: group_0: weights: group_size: expected 32, 64, 128 or -1, found 16
packed-4 | config_groups/group_0/weights/strategy | "tensor_group" | config_groups: group_0: weights: strategy: expected "tensor", "channel", "group" or "block", found "tensor_group"
packed-4 | config_groups/group_0/weights/actorder | "group" | config_groups: group_0: weights: actorder: expected null, "weight" or "static", found "group"
fp8-channel | config_groups/group_0/weights/symmetric | false | config_groups: group_0: weights: symmetric: expected true for floats, found false
"#;

#[test]
fn settings_are_refused_by_key() {
    for line in SETTINGS.trim().lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [case, path, value, expected] = cells[..] else { panic!("{line}") };
        let (mut config, all) = parts(case);
        let pointer = match path {
            "-" => "/quantization_config".to_owned(),
            path => format!("/quantization_config/{path}"),
        };
        let value = serde_json::from_str(value).unwrap();
        match config.pointer_mut(&pointer) {
            Some(place) => *place = value,
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                config.pointer_mut(parent).unwrap()[key] = value;
            }
        }
        let files = files(&config, &all);
        let early = Checkpoint::check_architecture(&Files::memory(files.clone()));
        let error = refusal(load(files));
        assert_eq!(error, format!("config.json: quantization_config: {expected}"));
        assert_eq!(refusal(early), error);
    }
}

#[test]
fn patterns_are_bounded() {
    let (mut config, all) = parts("int8");
    let mut ignoring = |list: Vec<String>| {
        config["quantization_config"]["ignore"] = json!(list);
        load(files(&config, &all)).err().map(|error| error.to_string())
    };
    let many = |count: usize| (0..count).map(|i| format!("re:lm_head{i}?")).collect::<Vec<_>>();
    assert_eq!(ignoring(many(64)), None);
    let error = ignoring(many(65)).unwrap();
    assert!(error.contains("ignore: expected at most 64 patterns, found"), "{error}");
    let error = ignoring(vec!["re:(lm_head{1,99}){1,99}".to_owned()]).unwrap();
    assert!(error.contains("size limit of 65536 bytes"), "{error}");
}

/// Bytes that make another text of JSON, or none.
const BYTES: &[u8] = b"0123456789[]{},:\"-. \0~x";

#[test]
fn damaged_files_are_refused_or_read() {
    for case in [
        "int8",
        "packed-4-zeros",
        "deepseek",
        "gptq-ordered",
        "awq",
        "nvfp4",
        "modelopt",
        "mlx-5",
        "mlx-mixed",
    ] {
        let (config, all) = parts(case);
        let refused = refused_of_damaged(&files(&config, &all));
        assert!(refused > 50, "{case}: {refused}");
    }
}

/// Damages a checkpoint in 200 ways, each of which is refused or read, and returns how many are refused.
pub fn refused_of_damaged(whole: &Named) -> usize {
    let mut noise = Noise(3);
    let refused = (0..200).filter(|round| {
        let mut damaged = whole.clone();
        let name = if round % 2 == 0 { "config.json" } else { "model.safetensors" };
        let file = damaged.get_mut(name).unwrap();
        // The configuration, or the header of the tensors.
        let length = file.len().min(6000);
        for _ in 0..=noise.below(3) {
            file[noise.below(length)] = BYTES[noise.below(BYTES.len())];
        }
        let dtype = [WeightDtype::F32, WeightDtype::Blocks][round / 2 % 2];
        let checkpoint = Checkpoint::open(&Files::memory(damaged));
        checkpoint.and_then(|found| Model::load(found.with_dtype(dtype))).is_err()
    });
    refused.count()
}

/// A change of one tensor, or of the configuration, that the tensors contradict.
pub fn refused(case: &str, change: impl FnOnce(&mut Value, &mut Tensors)) -> String {
    let (mut config, mut all) = parts(case);
    change(&mut config, &mut all);
    let error = refusal(load(files(&config, &all)));
    let first = "model.layers.0.self_attn.q_proj";
    let rest = error.replace("model.safetensors: ", "").replace(first, "Q");
    assert!(rest.starts_with("Q."), "{error}");
    rest
}

pub const Q: &str = "model.layers.0.self_attn.q_proj";

#[test]
fn tensors_that_contradict_the_configuration_are_named() {
    let without = |case: &str, part: &str| {
        refused(case, |_, all| drop(all.remove(&format!("{Q}.{part}")).unwrap()))
    };
    let missing = |tensor: &str, shape: &str| {
        format!("Q.{tensor}: expected a tensor of shape {shape}, found none")
    };
    assert_eq!(without("int8", "weight_scale"), missing("weight_scale", "[64, 1]"));
    assert_eq!(without("deepseek", "weight_scale_inv"), missing("weight_scale_inv", "[2, 2]"));
    assert_eq!(without("gptq", "scales"), missing("scales", "[2, 64]"));
    assert_eq!(without("gptq", "qweight"), missing("qweight", "[8, 64]"));
    assert_eq!(without("gptq-ordered", "g_idx"), missing("g_idx", "[32]"));
    assert_eq!(without("awq", "qzeros"), missing("qzeros", "[2, 8]"));
    assert_eq!(without("packed-4", "weight_shape"), missing("weight_shape", "[2]"));
    assert_eq!(
        without("packed-4-zeros", "weight_zero_point"),
        missing("weight_zero_point", "[8, 1]")
    );
    // Other bits, other groups.
    let set = |case: &str, key: &str, value: Value| {
        refused(case, |config, _| config["quantization_config"][key] = value)
    };
    let bits = set("gptq", "bits", json!(8));
    assert_eq!(bits, "Q.qweight: expected shape [16, 64], found [8, 64]");
    let groups = set("awq", "group_size", json!(64));
    assert_eq!(groups, "Q.scales: expected shape [1, 64], found [2, 64]");
    let blocks = set("deepseek", "weight_block_size", json!([32, 16]));
    assert_eq!(blocks, "Q.weight_scale_inv: expected shape [2, 4], found [2, 2]");
    // Plain numbers where codes are expected, and the reverse.
    let plain = refused("int8", |_, all| {
        let bytes = vec![0; 2 * 64 * 64];
        all.insert(format!("{Q}.weight"), (Dtype::BF16, vec![64, 64], bytes));
    });
    assert_eq!(plain, "Q.weight: expected the type I8 by quantization_config, found BF16");
    let ignored = set("int8", "ignore", json!([Q, "lm_head"]));
    assert_eq!(ignored, "Q.weight: expected BF16, F16 or F32, found I8");
    let method = refused("gptq", |config, _| {
        config["quantization_config"] = json!({"quant_method": "awq", "bits": 4, "group_size": 32});
    });
    assert_eq!(method, "Q.qweight: expected shape [64, 8], found [8, 64]");
}

#[test]
fn tensors_with_unfit_numbers_are_named() {
    let change = |case: &str, part: &str, bytes: &[u8]| {
        refused(case, |_, all| {
            let tensor = all.get_mut(&format!("{Q}.{part}")).unwrap();
            tensor.2[..bytes.len()].copy_from_slice(bytes);
        })
    };
    let group = change("gptq-ordered", "g_idx", &7u32.to_le_bytes());
    assert_eq!(group, "Q.g_idx: expected groups of 0 to 0, found 7 at element 0");
    let group = change("gptq", "g_idx", &(-1i32).to_le_bytes());
    assert_eq!(group, "Q.g_idx: expected groups of 0 to 1, found -1 at element 0");
    let shape = change("packed-4", "weight_shape", &63u64.to_le_bytes());
    assert_eq!(shape, "Q.weight_shape: expected the numbers [64, 64], found [63, 64]");
    let nan = change("deepseek", "weight", &[0, 0x7F]);
    assert_eq!(nan, "Q.weight: expected finite numbers, found NaN at element 1");
    let nan = change("nvfp4", "weight_scale", &[0x7F]);
    assert_eq!(nan, "Q.weight_scale: expected finite numbers, found NaN at element 0");
    let scale = change("int8", "weight_scale", &[0x80, 0x7F]);
    assert_eq!(scale, "Q.weight_scale: expected finite numbers, found inf at element 0");
}

#[test]
fn a_module_may_be_left_out() {
    // The list, and the modules whose weights are stored plain.
    let (one, all) = (Q, "self_attn.q_proj");
    let lists = [
        ("gptq", "modules_to_not_convert", json!([Q]), one),
        ("gptq", "dynamic", json!({r"-:.*\.0\.self_attn\.q.*": {}}), one),
        ("gptq", "modules_in_block_to_quantize", json!([GPTQ]), all),
        ("awq", "modules_to_not_convert", json!(["q_proj"]), all),
        ("awq", "modules_to_not_convert", json!([r"model\.layers\.\d+\.self_attn\.q_proj"]), all),
        ("deepseek", "ignored_layers", json!(["self_attn.q_proj"]), all),
        ("packed-4", "ignore", json!(["lm_head", r"re:.*\.q_proj$"]), all),
        ("packed-4", "ignore", json!(["lm_head", Q]), one),
    ];
    for (case, key, list, modules) in lists {
        let (mut config, mut all) = parts(case);
        let expanded = std::fs::read(folder(case).join("expanded.safetensors")).unwrap();
        all.retain(|name, _| !name.contains(modules) || name.ends_with(".bias"));
        all.extend(tensors(&expanded).into_iter().filter(|(name, _)| name.contains(modules)));
        let unlisted = refusal(load(files(&config, &all)));
        assert!(unlisted.contains("q_proj"), "{unlisted}");
        config["quantization_config"][key] = list;
        let model = load(files(&config, &all)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(generated(model), generated(Model::load(plain(case)).unwrap()), "{case}");
    }
}

/// The modules that GPTQ quantizes but for the queries.
const GPTQ: [&str; 6] = [
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// Integers for a matrix of F32 `[rows, columns]`, their scales, and the numbers that both stand for.
fn integers(bytes: &[u8], rows: usize) -> [Tensor; 3] {
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    let columns = numbers.len() / rows;
    let (mut codes, mut scales, mut expanded) = (Vec::new(), Vec::new(), Vec::new());
    for row in numbers.chunks(columns) {
        let scale = row.iter().fold(0.01f32, |most, x| most.max(x.abs())) / 126.9;
        let scale = half::f16::from_f32(scale).to_f32();
        scales.extend(scale.to_le_bytes());
        for code in row.iter().map(|x| (x / scale).round() as i8) {
            codes.push(code.cast_unsigned());
            expanded.extend((f32::from(code) * scale).to_le_bytes());
        }
    }
    let shape = vec![rows, columns];
    let scales = (Dtype::F32, vec![rows, 1], scales);
    [(Dtype::I8, shape.clone(), codes), scales, (Dtype::F32, shape, expanded)]
}

#[test]
fn experts_are_expanded_and_routers_need_not_be_listed() {
    let case = official::Case::named("qwen3-moe");
    let mut config = case.config();
    let mut stored = tensors(&std::fs::read(case.folder.join("model.safetensors")).unwrap());
    let mut plain = stored.clone();
    let linear = stored.keys().filter(|name| name.ends_with("_proj.weight")).cloned();
    for name in linear.collect::<Vec<_>>() {
        let (dtype, shape, bytes) = stored.remove(&name).unwrap();
        assert_eq!(dtype, Dtype::F32);
        let [codes, scales, expanded] = integers(&bytes, shape[0]);
        stored.extend([(name.clone(), codes), (format!("{name}_scale"), scales)]);
        plain.insert(name, expanded);
    }
    let want = load(files(&config, &plain)).unwrap();
    config["quantization_config"] =
        official::config(&folder("int8"))["quantization_config"].clone();
    let got = load(files(&config, &stored)).unwrap();
    assert_eq!(got.info(), want.info());
    assert!(got.info().experts.is_some());
    assert_eq!(got.logits(&case.tokens).unwrap(), want.logits(&case.tokens).unwrap());
}

/// Quantized checkpoints of DiffusionGemma have a matrix for each expert, the published one a tensor for all.
#[test]
fn experts_of_diffusion_gemma_may_be_stored_one_by_one() {
    let [case, _] = canvas::Case::all();
    let mut config = official::config(case.folder());
    let stacked = tensors(&std::fs::read(case.folder().join("model.safetensors")).unwrap());
    let tokens = [3, 14, 15, 9, 2, 6];
    for layout in ["experts", "moe.experts"] {
        let mut separate = Tensors::new();
        for (name, (dtype, shape, bytes)) in stacked.clone() {
            let Some((layer, part)) = name.split_once(".experts.") else {
                separate.insert(name, (dtype, shape, bytes));
                continue;
            };
            let names: &[&str] =
                if part == "down_proj" { &["down_proj"] } else { &["gate_proj", "up_proj"] };
            let shape = vec![shape[1] / names.len(), shape[2]];
            let size = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            for (index, bytes) in bytes.chunks(size).enumerate() {
                let (expert, matrix) = (index / names.len(), names[index % names.len()]);
                let name = format!("{layer}.{layout}.{expert}.{matrix}.weight");
                separate.insert(name, (dtype, shape.clone(), bytes.to_vec()));
            }
        }
        assert!(separate.len() > stacked.len());
        let want = Model::load(Checkpoint::open(&Files::memory(files(&config, &stacked))).unwrap());
        let (got, want) = (load(files(&config, &separate)).unwrap(), want.unwrap());
        assert_eq!(got.warnings(), want.warnings());
        assert_eq!(got.info(), want.info());
        let logits = |model: &Model| model.logits(&tokens).unwrap();
        assert_eq!(logits(&got), logits(&want), "{layout}");

        let names = separate.keys().filter(|name| name.contains(layout)).cloned();
        for name in names.collect::<Vec<_>>() {
            let (_, shape, bytes) = separate.remove(&name).unwrap();
            let [codes, scales, _] = integers(&bytes, shape[0]);
            separate.extend([(format!("{name}_scale"), scales), (name, codes)]);
        }
        config["quantization_config"] =
            official::config(&folder("int8-mlp"))["quantization_config"].clone();
        let targets = &mut config["quantization_config"]["config_groups"]["group_0"]["targets"];
        *targets = json!([r"re:.*experts\..*"]);
        let rounded = load(files(&config, &separate)).unwrap();
        let off = official::error(&logits(&rounded), &logits(&want), got.info().vocabulary.size);
        assert!(off > 1e-5 && off < 0.2, "{off:.1e}");
        config.as_object_mut().unwrap().remove("quantization_config");
    }
}

#[test]
fn integers_of_experts_are_kept() {
    let case = official::Case::named("qwen3-moe");
    let mut config = case.config();
    // Sizes that blocks divide, in place of the case's.
    for (key, size) in [
        ("hidden_size", 32),
        ("intermediate_size", 64),
        ("moe_intermediate_size", 32),
        ("head_dim", 8),
    ] {
        config[key] = json!(size);
    }
    let wider = |size: usize| match size {
        24 | 9 | 40 => 32,
        34 => 64,
        20 => 16,
        10 => 8,
        size => size,
    };
    let mut noise = Noise(8);
    let mut stored = Tensors::new();
    for (name, (dtype, shape, _)) in
        tensors(&std::fs::read(case.folder.join("model.safetensors")).unwrap())
    {
        let shape: Vec<usize> = shape.into_iter().map(wider).collect();
        let number = |_| if shape.len() == 1 { 1.0 } else { 0.2 * noise.next() };
        let numbers: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        if name.ends_with("_proj.weight") {
            let [codes, scales, _] = integers(&bytes, shape[0]);
            stored.extend([(format!("{name}_scale"), scales), (name, codes)]);
        } else {
            stored.insert(name, (dtype, shape, bytes));
        }
    }
    config["quantization_config"] =
        official::config(&folder("int8"))["quantization_config"].clone();
    let load = |dtype| {
        let checkpoint = Checkpoint::open(&Files::memory(files(&config, &stored))).unwrap();
        Model::load(checkpoint.with_dtype(dtype)).unwrap()
    };
    let (kept, expanded) = (load(WeightDtype::Blocks), load(WeightDtype::F32));
    assert!(kept.memory().weights < expanded.memory().weights);
    let vocab = kept.info().vocabulary.size;
    let logits = |model: &Model| model.logits(&case.tokens).unwrap();
    let off = official::error(&logits(&kept), &logits(&expanded), vocab);
    assert!(off > 1e-5 && off < 0.2, "{off:.1e}");
}

/// An adapter that multiplies inputs by ones, and the sum by `factor`.
fn adapter(factor: f32) -> Files {
    Files::memory([
        (
            "adapter_config.json",
            br#"{"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"]}"#.to_vec(),
        ),
        ("adapter_model.safetensors", {
            let name = |end: &str| format!("base_model.model.{Q}.lora_{end}.weight");
            let tensor = |shape: [usize; 2], x: f32| {
                (Dtype::F32, shape.to_vec(), x.to_le_bytes().repeat(64))
            };
            serialized(
                &[(name("A"), tensor([1, 64], 1.0)), (name("B"), tensor([64, 1], factor))].into(),
            )
        }),
    ])
}

#[test]
fn an_adapter_of_packed_weights_is_refused() {
    for case in ["gptq", "mlx"] {
        let error = refusal(quantized(case).with_lora(&adapter(0.0), None));
        assert!(error.ends_with("in the checkpoint, found none"), "{error}");
    }
    assert!(quantized("deepseek").with_lora(&adapter(0.0), None).is_ok());
}

#[test]
fn integers_with_an_adapter_are_expanded() {
    let tokens = [3, 14, 15, 9, 5, 5];
    let adapted = |checkpoint: Checkpoint| checkpoint.with_lora(&adapter(0.01), None).unwrap();
    let logits = |checkpoint| Model::load(checkpoint).unwrap().logits(&tokens).unwrap();
    let want = logits(adapted(plain("int8")));
    assert_ne!(want, logits(plain("int8")));
    assert_eq!(logits(adapted(quantized("int8")).with_dtype(WeightDtype::Blocks)), want);
    assert_eq!(logits(adapted(quantized("int8").with_dtype(WeightDtype::Blocks))), want);
}
