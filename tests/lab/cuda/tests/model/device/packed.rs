//! Packed weights: a model whose matrices are codes of a few bits has the bits of one that has the same
//! weights in bf16.

use super::texts::run;
use super::{checkpoint, near, on_device, sizes};
use crate::backends::{batch, shapes};
use crate::common::{self, Noise, Tiny, execute};
use crate::gguf_files::{File, Tensors, metadata};
use asynclane_cuda_lab::emulated;
use asynclane_kernels::row_in_codes;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceMemory, DeviceModel, Files, KvMemory,
    LoadError, WeightDtype,
};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use engine::Request;
use engine::decoding::DecodingSpec;
use half::bf16;
use safetensors::SafeTensors;
use serde_json::json;
use std::path::Path;
use step::{Candidate, Sampling};

/// The goldens' checkpoint.
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/checkpoint");
/// The block types that are kept, and their bits a weight on the device.
const KINDS: [(GgmlDType, u64); 9] = [
    (GgmlDType::Q2K, 5),
    (GgmlDType::Q4_0, 5),
    (GgmlDType::Q4_1, 5),
    (GgmlDType::Q5_0, 6),
    (GgmlDType::Q5_1, 6),
    (GgmlDType::Q8_0, 9),
    (GgmlDType::Q4K, 5),
    (GgmlDType::Q5K, 6),
    (GgmlDType::Q6K, 7),
];

/// The model with the weights that `int4` makes of its matrices. Embeddings are no matrix.
fn in_codes(mut tiny: Tiny) -> Tiny {
    let tensors = tiny.tensors.iter_mut().filter(|(name, _)| !name.contains(".wte."));
    for (_, (shape, values)) in tensors.filter(|(_, (shape, _))| shape.len() == 2) {
        *values = values.chunks_exact(shape[1]).flat_map(row_in_codes).collect();
    }
    tiny
}

/// The candidates of a batch of several sequences.
fn candidates(executor: &mut DeviceExecutor) -> Vec<Candidate> {
    let batch = batch(&mut Noise(7), &[5, 1, 40, 23], Sampling::GREEDY);
    execute(executor, &batch).candidates
}

#[test]
fn int4_has_the_bits_of_its_weights_in_bf16() {
    for (seed, shape) in shapes()[..2].iter().enumerate() {
        let shape = common::with(shape.clone(), &json!({"mlp_hidden_size": 96}));
        let tiny = Tiny::new(seed as u64 + 1, &shape);
        let got = candidates(&mut on_device(&tiny, WeightDtype::Int4));
        let want = candidates(&mut on_device(&in_codes(tiny), WeightDtype::Bf16));
        assert_eq!(got, want, "{shape}");
    }
}

#[test]
fn int4_of_odd_widths_names_the_tensor() {
    let tiny = Tiny::new(7, &json!({"d_model": 64, "mlp_hidden_size": 80}));
    let refused = DeviceModel::load(&emulated(), checkpoint(&tiny, WeightDtype::Int4));
    let Some(LoadError::Group { tensor, group: 32, found: 80, .. }) = refused.err() else {
        panic!("expected a refusal of the width 80");
    };
    assert!(tensor.contains("blocks.0.ff_out"), "{tensor}");
}

/// A file of blocks, its checkpoint in a dtype on a device.
fn in_dtype(file: &File, dtype: WeightDtype) -> DeviceExecutor {
    let checkpoint = file.checkpoint().unwrap().with_dtype(dtype);
    let model = DeviceModel::load(&emulated(), checkpoint).unwrap();
    assert_eq!(model.warnings(), [""; 0]);
    let config = sizes(&model);
    DeviceExecutor::new(model, config).unwrap()
}

/// Rotated heads in groups, a padded vocabulary.
pub(super) fn tiny(tied: bool) -> Tiny {
    let sizes = json!({"d_model": 256, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 512,
        "embedding_size": 64, "vocab_size": 61, "weight_tying": tied});
    Tiny::new(7, &common::with(sizes, &json!({})))
}

pub(super) fn file(name: &str, tiny: &Tiny, dtype: impl Fn(&str) -> GgmlDType) -> File {
    let metadata = metadata("llada", &tiny.config);
    File::write_as(&format!("packed-{name}"), &metadata, &tiny.tensors, dtype)
}

#[test]
fn blocks_have_the_bits_of_their_weights_in_bf16() {
    for (number, (kind, _)) in KINDS.into_iter().enumerate() {
        let file = file(&format!("{kind:?}"), &tiny(number % 2 == 0), |_| kind);
        let mut kept = in_dtype(&file, WeightDtype::Blocks);
        assert_eq!(kept.model().info().formats.matrices, WeightDtype::Blocks);
        let want = candidates(&mut in_dtype(&file, WeightDtype::Bf16));
        assert_eq!(candidates(&mut kept), want, "{kind:?}");
    }
}

/// Codes of a publisher with scales in bf16.
#[test]
fn kept_codes_have_the_bits_of_their_products_in_bf16() {
    for case in ["packed-4", "int8", "fp8-channel", "autofp8"] {
        let folder =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates/model/tests/model/fixtures");
        let folder = Path::new(folder).join("quantized").join(case);
        let load = |dtype| {
            let checkpoint = Checkpoint::open(&Files::folder(folder.clone())).unwrap();
            let model = DeviceModel::load(&emulated(), checkpoint.with_dtype(dtype)).unwrap();
            assert_eq!(model.info().formats.matrices, dtype, "{case}");
            let config = sizes(&model);
            DeviceExecutor::new(model, config).unwrap()
        };
        let (mut kept, mut plain) = (load(WeightDtype::Blocks), load(WeightDtype::Bf16));
        let batch = batch(&mut Noise(5), &[7, 3], Sampling::GREEDY);
        assert_eq!(execute(&mut kept, &batch), execute(&mut plain, &batch), "{case}");
    }
}

/// Files of `Q4_K_M` have some values and outputs of the MLP in six bits: their products are beside each
/// other, and their segments are those of smaller matrices.
#[test]
fn matrices_of_two_types_are_near_their_weights_in_bf16() {
    let file = file("mixed", &tiny(false), |name| match name {
        _ if name.contains("attn_v") || name.contains("ffn_down") => GgmlDType::Q6K,
        _ if name.contains("ffn_up") => GgmlDType::F16,
        _ => GgmlDType::Q4K,
    });
    let mut kept = in_dtype(&file, WeightDtype::Blocks);
    let want = candidates(&mut in_dtype(&file, WeightDtype::Bf16));
    let got = candidates(&mut kept);
    near(&got, &want, 1e-2, "mixed types");
    // A row is the same among fewer others.
    let alone = batch(&mut Noise(7), &[5], Sampling::GREEDY);
    assert_eq!(execute(&mut kept, &alone).candidates, got[..5]);
}

/// The bytes of the weights are those of the packed codes, for an estimate too.
#[test]
fn blocks_take_their_bits() {
    let tiny = tiny(false);
    // Attention and MLP of two layers, and the head with its padding.
    let numbers = |head: u64| 256 * (2 * (512 + 256 + 1024 + 512) + head);
    for (kind, bits) in KINDS {
        let file = file(&format!("bytes-{kind:?}"), &tiny, |_| kind);
        let config = DeviceConfig {
            page_size: 8,
            rows: 64,
            positions: 80,
            sequences: 2,
            kv: KvMemory::Bytes(1 << 20),
        };
        let needed = |dtype| {
            let mut checkpoint = file.checkpoint().unwrap().with_dtype(dtype);
            let needed = DeviceMemory::needed(&mut checkpoint, dtype, &config).unwrap();
            (needed, checkpoint)
        };
        let ((packed, checkpoint), (plain, _)) =
            (needed(WeightDtype::Blocks), needed(WeightDtype::Bf16));
        let saved = plain.weights - packed.weights;
        assert_eq!(saved, 2 * numbers(61) - bits * numbers(64) / 8, "{kind:?}");
        let device = emulated();
        let before = device.memory().unwrap().0;
        let model = DeviceModel::load(&device, checkpoint).unwrap();
        assert_eq!(before - device.memory().unwrap().0, packed.weights, "{kind:?}");
        drop(model);
    }
}

/// A file of a mixture: a row's experts have the bits of their weights in bf16, whichever rows are beside it.
#[test]
fn experts_in_blocks_have_the_bits_of_their_weights_in_bf16() {
    let config = json!({"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "intermediate_size": 512, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "vocab_size": 64, "head_dim": 64,
        "eos_token_id": 1, "num_local_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256});
    let mut metadata = metadata("qwen3moe", &config);
    for (key, count) in [
        ("qwen3moe.expert_count", 6),
        ("qwen3moe.expert_used_count", 2),
        ("qwen3moe.expert_feed_forward_length", 256),
    ] {
        metadata.push((key, Value::U32(count)));
    }
    for kind in [GgmlDType::Q4K, GgmlDType::Q8_0] {
        let name = format!("packed-experts-{kind:?}");
        let file = File::write_as(&name, &metadata, &mixture(), |_| kind);
        let mut kept = in_dtype(&file, WeightDtype::Blocks);
        assert_eq!(kept.model().info().experts.map(|experts| experts.count), Some(6));
        let got = candidates(&mut kept);
        assert_eq!(got, candidates(&mut in_dtype(&file, WeightDtype::Bf16)), "{kind:?}");
        let alone = batch(&mut Noise(7), &[5], Sampling::GREEDY);
        assert_eq!(execute(&mut kept, &alone).candidates, got[..5], "{kind:?}");
    }
}

/// The tensors of two layers with six experts.
fn mixture() -> Tensors {
    let mut noise = Noise(9);
    let mut all = Tensors::new();
    let mut add = |name: String, shape: &[usize]| {
        let number = |_| if shape.len() == 1 { 1.0 } else { 0.2 * noise.next() };
        let values = (0..shape.iter().product()).map(number).collect();
        all.insert(name, (shape.to_vec(), values));
    };
    for name in ["model.embed_tokens", "lm_head"] {
        add(format!("{name}.weight"), &[64, 256]);
    }
    add("model.norm.weight".to_owned(), &[256]);
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", &[256][..]),
            ("post_attention_layernorm", &[256]),
            ("self_attn.q_proj", &[256, 256]),
            ("self_attn.k_proj", &[128, 256]),
            ("self_attn.v_proj", &[128, 256]),
            ("self_attn.o_proj", &[256, 256]),
            ("self_attn.q_norm", &[64]),
            ("self_attn.k_norm", &[64]),
            ("mlp.gate", &[6, 256]),
            ("mlp.gate_exps", &[6, 256, 256]),
            ("mlp.up_exps", &[6, 256, 256]),
            ("mlp.down_exps", &[6, 256, 256]),
        ] {
            add(format!("model.layers.{layer}.{name}.weight"), shape);
        }
    }
    all
}

/// Whole texts of files in blocks, of the demo model where its widths are whole blocks.
#[test]
fn texts_of_blocks_are_those_of_their_weights_in_bf16() {
    for (kind, tiny) in [(GgmlDType::Q8_0, demo()), (GgmlDType::Q4K, tiny(false))] {
        let file = file(&format!("texts-{kind:?}"), &tiny, |_| kind);
        let text = |dtype| {
            let decoding = DecodingSpec::parse("fast").and_then(|spec| spec.resolve()).unwrap();
            let requests = (0..2).map(|number| {
                let prompt = (3..11).map(|token| token * 5 + number).collect();
                Request::new(prompt, 16, decoding.clone())
            });
            let found = run(&mut in_dtype(&file, dtype), requests.collect());
            found.into_iter().map(|found| found.text).collect::<Vec<_>>()
        };
        let got = text(WeightDtype::Blocks);
        assert!(got.iter().all(|text| text.len() == 16), "{got:?}");
        assert_eq!(got, text(WeightDtype::Bf16), "{kind:?}");
    }
}

/// A text of the demo model in int4, with a chat's tokens, beside another and alone.
#[test]
fn texts_in_int4_are_those_of_their_weights_in_bf16() {
    let mut tiny = demo();
    let text = |tiny: &Tiny, dtype, count: u32| {
        let mut executor = on_device(tiny, dtype);
        let decoding = DecodingSpec::parse("fast").and_then(|spec| spec.resolve()).unwrap();
        let requests = (0..count).map(|number| {
            let prompt = (20..30).map(|token| token * 7 + number).collect();
            Request::new(prompt, 24, decoding.clone())
        });
        let found = run(&mut executor, requests.collect());
        found.into_iter().map(|found| found.text).collect::<Vec<_>>()
    };
    let got = text(&tiny, WeightDtype::Int4, 2);
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [24; 2]);
    assert_eq!(text(&tiny, WeightDtype::Int4, 1), got[..1]);
    tiny = in_codes(tiny);
    assert_eq!(text(&tiny, WeightDtype::Bf16, 2), got);
}

/// The goldens' checkpoint.
fn demo() -> Tiny {
    let read = |name: &str| std::fs::read(Path::new(DEMO).join(name)).unwrap();
    let bytes = read("model.safetensors");
    let number = |bytes: &[u8; 2]| bf16::from_le_bytes(*bytes).to_f32();
    let all = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let tensors = all.into_iter().map(|(name, tensor)| {
        let numbers = tensor.data().as_chunks().0.iter().map(number);
        (name, (tensor.shape().to_vec(), numbers.collect()))
    });
    Tiny {
        config: serde_json::from_slice(&read("config.json")).unwrap(),
        tensors: tensors.collect(),
    }
}
