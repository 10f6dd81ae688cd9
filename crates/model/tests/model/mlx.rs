//! Files of MLX. `fixtures/quantized.py` generates them with mlx-lm, and those in `fixtures/mlx` with mlx-vlm.

use crate::common::{load, refusal};
use crate::official;
use crate::quantized::refusals::{refused, refused_of_damaged};
use crate::quantized::{Tensors, files, generated, parts, plain, tensors};
use asynclane_model::{Checkpoint, Files, Model, WeightDtype};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const TOKENS: [u32; 6] = [3, 14, 15, 9, 2, 6];

/// A folder of `fixtures/mlx`, by a model that mlx-vlm converted.
fn converted(case: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/mlx")).join(case)
}

/// Its configuration, its tensors, and those under the names of Hugging Face with the numbers of its codes.
fn both(case: &str) -> (Value, Tensors, Tensors) {
    let read = |file| tensors(&std::fs::read(converted(case).join(file)).unwrap());
    (official::config(&converted(case)), read("model.safetensors"), read("expanded.safetensors"))
}

fn without_quantization(config: &Value) -> Value {
    let mut config = config.clone();
    config.as_object_mut().unwrap().retain(|key, _| !key.starts_with("quantization"));
    config
}

const CONVERTED: [&str; 2] = ["mlx-diffusion-gemma", "mlx-llada2"];

#[test]
fn stacked_experts_have_the_logits_of_published_ones() {
    for case in CONVERTED {
        let (config, stored, published) = both(case);
        let open = |config: &Value, tensors: &Tensors| {
            Checkpoint::open(&Files::memory(files(config, tensors))).unwrap()
        };
        let load = |checkpoint: Checkpoint, dtype| {
            let model = Model::load(checkpoint.with_dtype(dtype)).unwrap();
            assert_eq!(model.warnings(), [] as [&str; 0], "{case}");
            model
        };
        let plain = without_quantization(&config);
        for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
            let got = load(open(&config, &stored), dtype);
            let want = load(open(&plain, &published), dtype);
            assert_eq!(got.info(), want.info(), "{case}");
            assert_eq!(got.logits(&TOKENS).unwrap(), want.logits(&TOKENS).unwrap(), "{case}");
        }
        let kept = load(open(&config, &stored), WeightDtype::Blocks);
        let want = load(open(&plain, &published), WeightDtype::F32);
        assert_eq!(kept.info().formats.matrices, WeightDtype::Blocks);
        assert!(kept.memory().weights < want.memory().weights / 2, "{case}");
        let (got, want) = (kept.logits(&TOKENS).unwrap(), want.logits(&TOKENS).unwrap());
        let off = official::error(&got, &want, kept.info().vocabulary.size);
        assert!(off > 1e-5 && off < 0.2, "{case}: {off:.1e}");
    }
}

/// Plain numbers whose experts are stacked, as mlx-vlm converts them to bf16.
#[test]
fn stacked_experts_may_be_plain() {
    for case in CONVERTED {
        let (config, stored, published) = both(case);
        let plain = without_quantization(&config);
        let mut stacked = Tensors::new();
        for (name, (dtype, shape, bytes)) in stored {
            let parts: Vec<&str> = name.rsplitn(2, '.').collect();
            if dtype != Dtype::U32 {
                if !["scales", "biases"].contains(&parts[0]) {
                    stacked.insert(name, (dtype, shape, bytes));
                }
                continue;
            }
            let own = name.strip_prefix("language_model.").unwrap_or(&name);
            let whole = own.strip_suffix(".weight").unwrap_or(own);
            let found = published.get(own).or_else(|| published.get(whole)).cloned();
            let tensor = found.unwrap_or_else(|| {
                let experts =
                    (0..shape[0]).map(|i| own.replace("switch_mlp", &format!("experts.{i}")));
                let experts: Vec<_> = experts.map(|name| &published[&name]).collect();
                let bytes = experts.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
                (experts[0].0, [&shape[..1], &experts[0].1].concat(), bytes)
            });
            stacked.insert(name, tensor);
        }
        let logits =
            |tensors: &Tensors| load(files(&plain, tensors)).unwrap().logits(&TOKENS).unwrap();
        assert_eq!(logits(&stacked), logits(&published), "{case}");
    }
}

#[test]
fn a_plan_knows_the_memory_of_stacked_experts() {
    for case in CONVERTED {
        let config = official::config(&converted(case)).to_string();
        let mut planned = Checkpoint::planned(&config).unwrap();
        let mut here = Checkpoint::open(&Files::folder(converted(case))).unwrap();
        assert_eq!(planned.quantization(), here.quantization());
        let planned = planned.survey(WeightDtype::Blocks).unwrap();
        let here = here.survey(WeightDtype::Blocks).unwrap();
        assert_eq!(planned.info.formats.matrices, WeightDtype::Blocks);
        let weights = [planned.memory.weights, here.memory.weights];
        assert!(
            weights[0] * 10 > weights[1] * 9 && weights[0] * 9 < weights[1] * 10,
            "{weights:?}"
        );
    }
}

#[test]
fn damaged_files_of_stacked_experts_are_refused_or_read() {
    for case in CONVERTED {
        let (config, stored, _) = both(case);
        let refused = refused_of_damaged(&files(&config, &stored));
        assert!(refused > 50, "{case}: {refused}");
    }
}

/// The errors of a change to the files of `fixtures/mlx`.
fn stacked_refusal(case: &str, change: impl FnOnce(&mut Value, &mut Tensors)) -> String {
    let (mut config, mut stored, _) = both(case);
    change(&mut config, &mut stored);
    refusal(load(files(&config, &stored)))
}

#[test]
fn stacked_tensors_that_contradict_the_configuration_are_named() {
    let layer = "language_model.model.layers.1.mlp.switch_mlp";
    let error = |change: &dyn Fn(&mut Tensors)| {
        let error = stacked_refusal("mlx-llada2", |_, all| change(all));
        error.replace(layer, "E").replace("model.safetensors: ", "")
    };
    let missing = error(&|all| drop(all.remove(&format!("{layer}.up_proj.scales"))));
    assert_eq!(missing, "E.up_proj.scales: expected a tensor of shape [4, 32, 2], found none");
    let missing = error(&|all| drop(all.remove(&format!("{layer}.gate_proj.weight"))));
    assert!(
        missing.ends_with(
            "experts.0.gate_proj.weight: expected a tensor of shape [32, 12], found none"
        ),
        "{missing}"
    );
    let shape =
        error(&|all| all.get_mut(&format!("{layer}.up_proj.biases")).unwrap().1 = vec![4, 64, 1]);
    assert_eq!(shape, "E.up_proj.biases: expected shape [4, 32, 2], found [4, 64, 1]");

    let gemma = "model.decoder.layers.0.experts.gate_up_proj";
    let shape = stacked_refusal("mlx-diffusion-gemma", |_, all| {
        all.get_mut(&format!("{gemma}.weight")).unwrap().1 = vec![3, 32, 16];
    });
    assert_eq!(
        shape,
        format!("model.safetensors: {gemma}.weight: expected shape [3, 64, 8], found [3, 32, 16]")
    );
    let factor = stacked_refusal("mlx-diffusion-gemma", |config, all| {
        config["quantization"]["model.decoder.layers.0.experts.gate_up_proj"] =
            json!({"mode": "nvfp4"});
        let scales = all.get_mut(&format!("{gemma}.scales")).unwrap();
        *scales = (Dtype::U8, vec![3, 64, 4], vec![0x38; 768]);
        all.insert(format!("{gemma}.global_scale"), (Dtype::F32, vec![3], vec![0; 12]));
    });
    assert_eq!(
        factor,
        format!(
            "model.safetensors: {gemma}.global_scale: expected scales without a factor, found a factor"
        )
    );
}

#[test]
fn tensors_that_contradict_the_configuration_are_named() {
    const Q: &str = crate::quantized::Q;
    let without = |part: &str| refused("mlx", |_, all| drop(all.remove(&format!("{Q}.{part}"))));
    for part in ["scales", "biases"] {
        let expected = format!("Q.{part}: expected a tensor of shape [64, 1], found none");
        assert_eq!(without(part), expected);
    }
    assert_eq!(without("weight"), "Q.weight: expected a tensor of shape [64, 8], found none");
    let change = |case: &str, part: &str, dtype, shape: &[usize]| {
        refused(case, |_, all| {
            let tensor = all.get_mut(&format!("{Q}.{part}")).unwrap();
            let count = shape.iter().product::<usize>();
            *tensor = (dtype, shape.to_vec(), vec![0; count * dtype_bytes(dtype)]);
        })
    };
    assert_eq!(
        change("mlx", "weight", Dtype::U32, &[64, 16]),
        "Q.weight: expected shape [64, 8], found [64, 16]"
    );
    assert_eq!(
        change("mlx", "scales", Dtype::BF16, &[64, 2]),
        "Q.scales: expected shape [64, 1], found [64, 2]"
    );
    assert_eq!(
        change("mlx", "biases", Dtype::F32, &[64, 1]),
        "Q.biases: expected the type BF16 by quantization, found F32"
    );
    assert_eq!(
        change("mlx", "scales", Dtype::U8, &[64, 1]),
        "Q.scales: expected the type F32, BF16, F16 by quantization, found U8"
    );
    assert_eq!(
        change("mlx-nvfp4", "scales", Dtype::F8_E4M3, &[32, 2]),
        "Q.scales: expected the type U8 by quantization, found F8_E4M3"
    );
    let last = |case: &str, part: &str, bytes: &[u8]| {
        refused(case, |_, all| {
            all.get_mut(&format!("{Q}.{part}")).unwrap().2[..bytes.len()].copy_from_slice(bytes);
        })
    };
    let found = |part: &str, found| {
        format!("Q.{part}: expected finite numbers, found {found} at element 0")
    };
    assert_eq!(last("mlx", "scales", &[0x80, 0x7F]), found("scales", "inf"));
    assert_eq!(last("mlx", "biases", &[0xC0, 0x7F]), found("biases", "NaN"));
    assert_eq!(last("mlx-nvfp4", "scales", &[0x7F]), found("scales", "NaN"));
    assert_eq!(last("mlx-mxfp4", "scales", &[0xFF]), found("scales", "NaN"));
    assert_eq!(last("mlx-mxfp8", "scales", &[0xFF]), found("scales", "NaN"));
    // Groups that do not divide a row.
    let group = refused("mlx", |config, _| config["quantization"][Q] = json!({"group_size": 128}));
    assert_eq!(group, "Q.weight: expected rows of a multiple of 128 weights for mlx, found 64");
}

fn dtype_bytes(dtype: Dtype) -> usize {
    dtype.bitsize() / 8
}

/// Modules with settings of their own, which need not exist, and modules that are not quantized.
#[test]
fn modules_may_have_their_own_settings() {
    const Q: &str = crate::quantized::Q;
    let want = generated(Model::load(plain("mlx")).unwrap());
    let (mut config, mut all) = parts("mlx");
    config["quantization"]["model.layers.7.no.such"] = json!({"bits": 3});
    config["quantization"]["model.layers.8.no.such"] = json!(false);
    config["quantization"][Q] = json!({"group_size": 64, "bits": 4});
    assert_eq!(generated(load(files(&config, &all)).unwrap()), want);
    // A module that is said to be plain has no codes.
    config["quantization"][Q] = json!(false);
    let error = refusal(load(files(&config, &all)));
    assert!(
        error.ends_with(&format!("{Q}.weight: expected shape [64, 64], found [64, 8]")),
        "{error}"
    );
    let expanded = crate::quantized::folder("mlx").join("expanded.safetensors");
    let numbers = tensors(&std::fs::read(expanded).unwrap());
    let name = format!("{Q}.weight");
    all.retain(|name, _| !name.starts_with(Q) || name.ends_with(".bias"));
    all.insert(name.clone(), numbers[&name].clone());
    assert_eq!(generated(load(files(&config, &all)).unwrap()), want);
    // Nor need it be listed: a module is quantized if its codes are stored.
    config["quantization"].as_object_mut().unwrap().remove(Q);
    let model = load(files(&config, &all)).unwrap();
    assert_eq!(model.warnings(), [] as [&str; 0]);
    assert_eq!(generated(model), want);
}

/// A module may be named as its tensors are, or without the prefix of a model that reads text alone.
#[test]
fn settings_belong_to_modules_under_every_name() {
    for (module, stored) in [
        ("language_model.model.layers.0.attention.dense", "model.layers.0.attention.dense"),
        ("model.layers.0.attention.dense", "model.layers.0.attention.dense"),
        (
            "language_model.model.layers.1.mlp.switch_mlp.up_proj",
            "model.layers.1.mlp.switch_mlp.up_proj",
        ),
        ("model.layers.1.mlp.switch_mlp.up_proj", "model.layers.1.mlp.switch_mlp.up_proj"),
    ] {
        let error = stacked_refusal("mlx-llada2", |config, _| {
            config["quantization"][module] = json!({"bits": 3, "group_size": 32});
        });
        assert!(
            error.contains(&format!("language_model.{stored}.weight: expected shape")),
            "{error}"
        );
    }
}

#[test]
fn a_method_of_transformers_precedes() {
    let (mut config, all) = parts("gptq");
    config["quantization"] = json!({"bits": 3, "group_size": 64});
    let model = load(files(&config, &all)).unwrap();
    assert_eq!(generated(model), generated(Model::load(plain("gptq")).unwrap()));
}

/// Pointer into `quantization`, value, and the end of the error.
const SETTINGS: &str = r#"
bits | 1 | bits: expected 2 or 3 or 4 or 5 or 6 or 8, found 1
bits | 7 | bits: expected 2 or 3 or 4 or 5 or 6 or 8, found 7
bits | "4" | bits: expected 2 or 3 or 4 or 5 or 6 or 8, found "4"
group_size | 16 | group_size: expected 32, 64 or 128, found 16
group_size | 0 | group_size: expected a positive whole number, found 0
mode | "int" | mode: expected one of affine, mxfp4, mxfp8, nvfp4, found "int"
mode | "mxfp4" | group_size: expected 32, found 64
global_scale | true | global_scale: expected false, found true
a.b | {"bits":9} | a.b: bits: expected 2 or 3 or 4 or 5 or 6 or 8, found 9
a.b | {"mode":"nvfp4","bits":8} | a.b: bits: expected 4, found 8
"#;

#[test]
fn settings_are_refused_by_key() {
    for line in SETTINGS.trim().lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [key, value, expected] = cells[..] else { panic!("{line}") };
        let (mut config, all) = parts("mlx");
        config["quantization"][key] = serde_json::from_str(value).unwrap();
        let files = files(&config, &all);
        let early = Checkpoint::check_architecture(&Files::memory(files.clone()));
        let error = refusal(load(files));
        assert_eq!(error, format!("config.json: quantization: {expected}"));
        assert_eq!(refusal(early), error);
    }
    let (mut config, all) = parts("mlx");
    for i in 0..18 {
        let bits = [2, 3, 4, 5, 6, 8][i % 6];
        config["quantization"][format!("m{i:02}")] =
            json!({"bits": bits, "group_size": 32 << (i / 6)});
    }
    let error = refusal(load(files(&config, &all)));
    assert!(error.contains("m16: expected one of at most 16 settings of modules"), "{error}");
}
