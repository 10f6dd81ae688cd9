//! Configurations and files that are refused, and descriptions of formats.

use super::*;

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
    assert_eq!(
        plain,
        "Q.weight: expected the type I8 by the quantization's configuration, found BF16"
    );
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
