//! A model on several emulated devices, compared bit by bit with the same model on one.

use super::sizes;
use crate::backends::shapes;
use crate::common::Tiny;
use crate::official::Case;
use crate::ranks::{Decoded, SIZES, decode, several};
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

/// Asserts that the ranks of a model have the logits and decode the texts of one emulated device.
fn check(what: &str, all: Model<Ranks<Accelerator>>, alone: Model<Ranks<Accelerator>>) -> Decoded {
    let logits = |model: &Model<Ranks<Accelerator>>| -> Vec<u32> {
        let logits = model.logits(&[3, 9, 27, 14, 30, 2, 11]).unwrap();
        logits.into_iter().map(f32::to_bits).collect()
    };
    assert!(logits(&all) == logits(&alone), "{what}: logits");
    let run = |model| decode(&mut ModelExecutor::new(model, SIZES).unwrap());
    let got = run(all);
    assert_eq!(got, run(alone), "{what}");
    got
}

/// Covers biases, grouped heads, head norms, tied heads, and every kind of attention.
#[test]
fn ranks_change_no_bit_of_any_family() {
    let mut families = Vec::new();
    for case in Case::all() {
        let load = |count| {
            let checkpoint = Checkpoint::open(&Files::folder(&case.folder)).unwrap();
            on_ranks(count, WeightDtype::F32, checkpoint)
        };
        let Ok(all) = load(2) else { continue };
        let family = all.info().family;
        if !families.contains(&family) {
            families.push(family);
            check(&case.name, all, load(1).unwrap());
        }
    }
    assert_eq!(families.len(), 8, "{families:?}");
}

/// Asserts that so many emulated devices decode with the bits of the executor of one device.
fn check_device(
    what: &str,
    (counts, dtype): (&[usize], WeightDtype),
    open: impl Fn() -> Checkpoint,
) {
    let one = DeviceModel::load(&Device::emulated(), open().with_dtype(dtype)).unwrap();
    let on_device = sizes(&one);
    let want = decode(&mut DeviceExecutor::new(one, on_device).unwrap());
    for &count in counts {
        let what = format!("{what}, {}, {count} ranks", dtype.name());
        let load = |count| on_ranks(count, dtype, open()).unwrap();
        assert_eq!(check(&what, load(count), load(1)), want, "{what}");
    }
}

#[test]
fn ranks_change_no_bit_in_any_dtype() {
    let llada = json!({"d_model": 32, "n_kv_heads": 4, "mlp_hidden_size": 40, "include_bias": true,
        "bias_for_layer_norm": false});
    let llada = Tiny::new(17, &llada);
    // Head norms, more query heads than key heads.
    let sdar = json!({"architectures": ["SDARForCausalLM"], "hidden_size": 32, "head_dim": 8,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 2, "block_size": 4,
        "intermediate_size": 40, "vocab_size": 61, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "mask_token_id": 5, "eos_token_id": 1});
    let sdar = || Checkpoint::synthetic(&sdar.to_string(), 7).unwrap();
    for (dtype, counts) in [
        (WeightDtype::F32, [&[2, 4][..], &[2, 4]]),
        (WeightDtype::Bf16, [&[2], &[4]]),
        (WeightDtype::Int8, [&[4], &[2]]),
    ] {
        check_device("llada", (counts[0], dtype), || llada.checkpoint());
        check_device("sdar", (counts[1], dtype), sdar);
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
