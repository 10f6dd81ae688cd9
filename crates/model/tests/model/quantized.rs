//! Checkpoints that their publishers quantized. `fixtures/quantized.py` generates them.

mod experts;
mod older;
pub mod refusals;

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
pub const Q: &str = "model.layers.0.self_attn.q_proj";

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
fn integers_with_an_adapter_are_expanded() {
    let tokens = [3, 14, 15, 9, 5, 5];
    let adapted = |checkpoint: Checkpoint| checkpoint.with_lora(&adapter(0.01), None).unwrap();
    let logits = |checkpoint| Model::load(checkpoint).unwrap().logits(&tokens).unwrap();
    let want = logits(adapted(plain("int8")));
    assert_ne!(want, logits(plain("int8")));
    assert_eq!(logits(adapted(quantized("int8")).with_dtype(WeightDtype::Blocks)), want);
    assert_eq!(logits(adapted(quantized("int8").with_dtype(WeightDtype::Blocks))), want);
}
