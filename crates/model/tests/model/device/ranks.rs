//! A model on several emulated devices, compared bit by bit with the same model on one.

use super::sizes;
use crate::backends::shapes;
use crate::common::Tiny;
use crate::official::Case;
use crate::ranks::{SIZES, decode, several};
use asynclane_model::{
    Accelerator, Checkpoint, Device, DeviceExecutor, DeviceModel, Files, LoadError, Model,
    ModelExecutor, Ranks, WeightDtype,
};
use serde_json::json;

/// A model on so many emulated devices.
fn on_ranks(
    count: usize,
    dtype: WeightDtype,
    checkpoint: Checkpoint,
) -> Result<Model<Ranks<Accelerator>>, LoadError> {
    let one = |_| Accelerator::new(&Device::emulated(), dtype).unwrap();
    let ranks = Ranks::new((0..count).map(one).collect()).unwrap();
    let kv = Accelerator::precision_of(dtype).unwrap().kv_dtype();
    Model::load_on(ranks, checkpoint.with_dtype(dtype).with_kv_dtype(kv))
}

/// Asserts that `ranks` emulated devices decode with the bits of one.
fn check(what: &str, (ranks, dtype): (usize, WeightDtype), open: impl Fn() -> Checkpoint) {
    let what = format!("{what}, {}, {ranks} ranks", dtype.name());
    let tokens = [3, 9, 27, 14, 30, 2, 11];
    let all = on_ranks(ranks, dtype, open()).unwrap();
    let alone = on_ranks(1, dtype, open()).unwrap();
    let bits = |logits: Vec<f32>| -> Vec<u32> { logits.into_iter().map(f32::to_bits).collect() };
    let [got, want] = [&all, &alone].map(|of| bits(of.logits(&tokens).unwrap()));
    assert!(got == want, "{what}: logits");
    let one = DeviceModel::load(&Device::emulated(), open().with_dtype(dtype)).unwrap();
    let on_device = sizes(&one);
    let mut one = DeviceExecutor::new(one, on_device).unwrap();
    let mut all = ModelExecutor::new(all, SIZES).unwrap();
    assert_eq!(decode(&mut all), decode(&mut one), "{what}");
}

/// Covers biases, grouped heads, head norms, tied heads, and every kind of attention.
#[test]
fn ranks_change_no_bit_of_any_family() {
    let mut families = Vec::new();
    for case in Case::all() {
        let open = || Checkpoint::open(&Files::folder(&case.folder)).unwrap();
        let Ok(model) = on_ranks(2, WeightDtype::F32, open()) else {
            continue;
        };
        let family = model.info().family;
        if !families.contains(&family) {
            families.push(family);
            check(&case.name, (2, WeightDtype::F32), open);
        }
    }
    println!("{families:?}");
}

#[test]
fn ranks_change_no_bit_in_any_dtype() {
    let llada = json!({"d_model": 64, "n_kv_heads": 4, "include_bias": true,
        "bias_for_layer_norm": false});
    let llada = Tiny::new(17, &llada);
    let qwen3 = json!({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 80, "vocab_size": 61, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "eos_token_id": 1});
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
        for ranks in [2, 4] {
            check("llada", (ranks, dtype), || llada.checkpoint());
            let open = || Checkpoint::synthetic(&qwen3.to_string(), 7).unwrap();
            check("qwen3", (ranks, dtype), open);
        }
    }
}

#[test]
fn samples_and_page_copies_are_the_same_on_ranks() {
    let tiny = Tiny::new(4, &shapes()[1]);
    let dtype = WeightDtype::F32;
    let ranks = on_ranks(2, dtype, tiny.checkpoint()).unwrap();
    assert_eq!(ranks.info().dtype, dtype);
    let mut ranks = ModelExecutor::new(ranks, SIZES).unwrap();
    assert_eq!(ranks.instructions(), "CUDA");
    let want = several(&mut super::on_device(&tiny, dtype));
    assert_eq!(several(&mut ranks), want);
}
