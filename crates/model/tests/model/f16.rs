//! Matrices in numbers of 16 bits (F16), which are kept so and multiplied as those of f32.

use crate::common::{self, Store, Tiny, load, with};
use crate::gguf_files::{File, metadata};
use asynclane_model::{Checkpoint, Files, Model, WeightDtype};
use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};

fn tiny(more: &Value) -> Tiny {
    let sizes = json!({"d_model": 128, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 352,
        "embedding_size": 320, "vocab_size": 311});
    Tiny::new(9, &with(sizes, more)).rounded(Store::F16)
}

fn logits(model: &Model) -> Vec<f32> {
    let tokens: Vec<u32> = (0..40).map(|i| i * 13 % 61).collect();
    model.logits(&tokens).unwrap()
}

/// The bytes of the weights are near half of those in f32.
fn is_half(halves: &Model, floats: &Model) -> bool {
    let [halves, floats] = [halves, floats].map(|model| model.memory().weights as f64);
    (0.5..0.6).contains(&(halves / floats))
}

#[test]
fn matrices_take_half_the_memory_and_have_the_bits_of_f32() {
    let variants = [json!({}), json!({"weight_tying": true}), json!({"include_qkv_bias": true})];
    for more in variants {
        let tiny = tiny(&more);
        let [halves, floats] =
            [Store::F16, Store::F32].map(|store| load(tiny.files(store)).unwrap());
        assert_eq!(logits(&halves), logits(&floats), "{more}");
        assert!(is_half(&halves, &floats), "{:?} {:?}", halves.memory(), floats.memory());
        assert_eq!(halves.info().formats.matrices, WeightDtype::F32);
        for dtype in WeightDtype::ALL {
            let open = |store| Checkpoint::open(&Files::memory(tiny.files(store))).unwrap();
            let survey = open(Store::F16).survey(dtype).unwrap();
            let [halves, floats] = [Store::F16, Store::F32]
                .map(|store| Model::load(open(store).with_dtype(dtype)).unwrap());
            assert_eq!(survey.memory, halves.memory(), "{}", dtype.name());
            assert_eq!(logits(&halves), logits(&floats), "{}", dtype.name());
            // The table keeps its 16 bits beside matrices in any dtype.
            let saved = floats.memory().weights - halves.memory().weights;
            assert!(saved >= 2 * 320 * 128, "{}: {saved}", dtype.name());
        }
    }
}

#[test]
fn rows_that_are_no_multiple_of_32_become_f32() {
    let tiny = tiny(&json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 3, "mlp_hidden_size": 80}));
    let [halves, floats] = [Store::F16, Store::F32].map(|store| load(tiny.files(store)).unwrap());
    assert_eq!(logits(&halves), logits(&floats));
    assert_eq!(halves.memory().weights, floats.memory().weights);
}

#[test]
fn gguf_matrices_stay_in_16_bits_also_beside_blocks() {
    let tiny = tiny(&json!({}));
    let write = |name: &str, dtype: &dyn Fn(&str) -> GgmlDType| {
        let metadata = metadata("llada", &tiny.config);
        File::write_as(&format!("f16-{name}"), &metadata, &tiny.tensors, dtype)
    };
    let load = |file: &File| {
        Model::load(file.checkpoint().unwrap().with_dtype(WeightDtype::Blocks)).unwrap()
    };
    let [halves, floats] = [("halves", GgmlDType::F16), ("floats", GgmlDType::F32)]
        .map(|(name, dtype)| load(&write(name, &|_| dtype)));
    assert_eq!(logits(&halves), logits(&floats));
    assert!(is_half(&halves, &floats));
    let mixed = |plain: GgmlDType| {
        move |name: &str| if name.contains("attn") { plain } else { GgmlDType::Q4_0 }
    };
    let [halves, floats] = [("beside", GgmlDType::F16), ("before", GgmlDType::F32)]
        .map(|(name, dtype)| load(&write(name, &mixed(dtype))));
    assert_eq!(halves.info().formats.matrices, WeightDtype::Blocks);
    assert_eq!(logits(&halves), logits(&floats));
    assert!(halves.memory().weights < floats.memory().weights);
}

#[test]
fn numbers_that_are_not_finite_are_refused_by_name() {
    let mut tiny = tiny(&json!({}));
    let name = "model.transformer.blocks.1.up_proj.weight";
    tiny.tensors.get_mut(name).unwrap().1[70] = 1e9;
    let error = common::refusal(load(tiny.files(Store::F16)));
    let start = format!("model.safetensors: {name}: ");
    assert!(error.starts_with(&start) && error.contains("inf"), "{error}");
}

#[test]
fn a_model_that_is_not_here_is_estimated_in_16_bits() {
    let config = |dtype: &str| tiny(&json!({"torch_dtype": dtype})).config.to_string();
    let weights = |dtype: &str| {
        let mut planned = Checkpoint::planned(&config(dtype)).unwrap();
        planned.survey(WeightDtype::Blocks).unwrap().memory.weights
    };
    let loaded = load(tiny(&json!({})).files(Store::F16)).unwrap();
    assert_eq!(weights("float16"), loaded.memory().weights);
    assert!(weights("float32") > weights("float16"));
}
