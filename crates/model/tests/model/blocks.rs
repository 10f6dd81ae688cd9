//! Matrices that keep the blocks of a GGUF file.

use crate::common::{self, Tiny, execute, push, row, sized};
use crate::gguf_files::{File, metadata};
use crate::official;
use asynclane_model::{Candle, LoadError, Model, ModelExecutor, WeightDtype};
use candle_core::quantized::{GgmlDType, gguf_file};
use serde_json::{Value, json};
use step::{Batch, Candidate, Executor, Sampling};

/// The types that are kept, with their bits per weight in the file and the most in memory.
const KINDS: [(GgmlDType, f64, f64); 10] = [
    (GgmlDType::Q2K, 2.625, 4.625),
    (GgmlDType::Q3K, 3.4375, 6.625),
    (GgmlDType::Q4_0, 4.5, 5.0),
    (GgmlDType::Q4_1, 5.0, 5.0),
    (GgmlDType::Q5_0, 5.5, 6.0),
    (GgmlDType::Q5_1, 6.0, 6.0),
    (GgmlDType::Q8_0, 8.5, 9.0),
    (GgmlDType::Q4K, 4.5, 4.625),
    (GgmlDType::Q5K, 5.5, 5.625),
    (GgmlDType::Q6K, 6.5625, 6.625),
];

/// Rows of whole blocks of every type, rotated heads in groups, a padded vocabulary.
fn tiny(more: Value) -> Tiny {
    let sizes = json!({"d_model": 256, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 512,
        "embedding_size": 64, "vocab_size": 61});
    Tiny::new(7, &common::with(sizes, &more))
}

fn file(name: &str, tiny: &Tiny, dtype: impl Fn(&str) -> GgmlDType) -> File {
    let metadata = metadata("llada", &tiny.config);
    File::write_as(&format!("blocks-{name}"), &metadata, &tiny.tensors, dtype)
}

fn load(file: &File, dtype: WeightDtype) -> Result<Model, LoadError> {
    Model::load(file.checkpoint()?.with_dtype(dtype))
}

fn tokens() -> Vec<u32> {
    (0..40).map(|i| i * 13 % 61).collect()
}

/// The largest difference from the logits of the widened matrices, relative to the row's largest logit.
fn error(got: &Model<impl asynclane_model::Host>, widened: &Model) -> f64 {
    let got = got.logits(&tokens()).unwrap();
    official::error(&got, &widened.logits(&tokens()).unwrap(), 61)
}

#[test]
fn logits_are_near_those_of_the_widened_matrices() {
    let tiny = tiny(json!({}));
    for (kind, ..) in KINDS {
        let file = file(&format!("near-{kind:?}"), &tiny, |_| kind);
        let kept = load(&file, WeightDtype::Blocks).unwrap();
        assert_eq!(kept.info().formats.matrices, WeightDtype::Blocks);
        assert_eq!(kept.warnings(), [] as [&str; 0]);
        let widened = load(&file, WeightDtype::F32).unwrap();
        assert_eq!(kept.info().parameters, widened.info().parameters);
        let off = error(&kept, &widened);
        // Activations are rounded to 8 bits in groups of 32; the weights are the same.
        assert!(off > 1e-5 && off < 0.1, "{kind:?}: {off:.1e}");
        let checkpoint = file.checkpoint().unwrap().with_dtype(WeightDtype::Blocks);
        let candle = Model::load_on(Candle::default(), checkpoint).unwrap();
        let off = error(&candle, &widened);
        assert!(off < 1e-4, "{kind:?} on candle: {off:.1e}");
    }
}

/// Gives the matrices of a file another type with blocks as long, of this number.
fn retype(file: &File, number: u32, block: usize, change: impl Fn(&mut [u8])) {
    let path = file.folder.join("model.gguf");
    let mut bytes = std::fs::read(&path).unwrap();
    let content = gguf_file::Content::read(&mut std::io::Cursor::new(&bytes)).unwrap();
    for (name, info) in &content.tensor_infos {
        let dims = info.shape.dims();
        if dims.len() < 2 {
            continue;
        }
        let length = info.shape.elem_count() / info.ggml_dtype.block_size() * block;
        assert_eq!(info.ggml_dtype.type_size(), block);
        let start = (content.tensor_data_offset + info.offset) as usize;
        bytes[start..start + length].chunks_exact_mut(block).for_each(&change);
        let entry = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
        let found = bytes.windows(entry.len()).position(|window| window == entry);
        // Number of dimensions, dimensions, type.
        let kind = found.unwrap() + entry.len() + 4 + 8 * dims.len();
        bytes[kind..kind + 4].copy_from_slice(&number.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn types_with_lists_are_kept_in_other_blocks() {
    let tiny = tiny(json!({}));
    // IQ4_NL in blocks of Q4_0 with the scale 2^-9, and IQ3_S in those of Q3_K with 2^-13.
    let cases = [
        (GgmlDType::Q4_0, "IQ4_NL", 20, 18, 0x1800_u16),
        (GgmlDType::Q3K, "IQ3_S", 21, 110, 0x0800),
    ];
    for (kind, name, number, block, scale) in cases {
        let file = file(&format!("listed-{number}"), &tiny, |_| kind);
        retype(&file, number, block, |block| block[..2].copy_from_slice(&scale.to_le_bytes()));
        let mut checkpoint = file.checkpoint().unwrap();
        assert_eq!(checkpoint.quantization(), Some(format!("GGUF, {name}")));
        let survey = checkpoint.survey(WeightDtype::Blocks).unwrap();
        let kept = Model::load(checkpoint.with_dtype(WeightDtype::Blocks)).unwrap();
        assert_eq!(survey.memory, kept.memory());
        let widened = load(&file, WeightDtype::F32).unwrap();
        assert!(4 * kept.memory().weights < 3 * widened.memory().weights);
        let off = error(&kept, &widened);
        assert!(off > 1e-5 && off < 0.1, "{number}: {off:.1e}");
        let checkpoint = file.checkpoint().unwrap().with_dtype(WeightDtype::Blocks);
        let candle = Model::load_on(Candle::default(), checkpoint).unwrap();
        let off = error(&candle, &widened);
        assert!(off < 1e-4, "{number} on candle: {off:.1e}");
    }
}

#[test]
fn memory_is_as_surveyed_and_as_the_types_need() {
    let tiny = tiny(json!({}));
    let numbers = |dims: usize| {
        let tensors = tiny.tensors.values();
        let sizes = tensors.filter(|(shape, _)| shape.len() == dims);
        sizes.map(|(_, values)| values.len()).sum::<usize>() as f64
    };
    // The embedding table has the file's blocks; padding of the vocabulary has no logit.
    let (table, padding) = (64.0 * 256.0, 3.0 * 256.0);
    let matrices = numbers(2) - table - padding;
    for (kind, in_file, in_memory) in KINDS {
        let file = file(&format!("memory-{kind:?}"), &tiny, |_| kind);
        let mut checkpoint = file.checkpoint().unwrap();
        let survey = checkpoint.survey(WeightDtype::Blocks).unwrap();
        let model = Model::load(checkpoint.with_dtype(WeightDtype::Blocks)).unwrap();
        assert_eq!(survey.memory, model.memory(), "{kind:?}");
        assert_eq!(&survey.info, model.info(), "{kind:?}");
        let angles = 256.0 * 64.0;
        let others = 4.0 * (numbers(1) + angles) + table * in_file / 8.0;
        let bits = 8.0 * (survey.memory.weights as f64 - others) / matrices;
        // The head has 61 columns of a panel of 64.
        let bounds = in_file..1.01 * in_memory;
        assert!(bounds.contains(&bits), "{kind:?}: {bits}");
    }
}

/// The candidates of one of several sequences of one length.
fn candidates(executor: &mut ModelExecutor, others: u32) -> Vec<Candidate> {
    let mut batch = Batch::default();
    for sequence in 0..=others {
        let rows = tokens().into_iter().zip(0..);
        let rows = rows.map(|(token, i)| row((token + sequence) % 61, i, 40));
        let pages: Vec<u32> = (0..5).map(|page| 5 * sequence + page).collect();
        push(&mut batch, rows.collect(), &pages, Sampling::GREEDY);
    }
    execute(executor, &batch).candidates[..40].to_vec()
}

#[test]
fn a_sequence_has_the_same_candidates_beside_others() {
    let tiny = tiny(json!({"weight_tying": true}));
    for (kind, ..) in KINDS {
        let file = file(&format!("beside-{kind:?}"), &tiny, |_| kind);
        let model = load(&file, WeightDtype::Blocks).unwrap();
        assert!(model.info().vocabulary.tied);
        let mut executor = sized(model, 40, 2);
        assert_eq!(executor.spec().vocab_size, 61);
        let alone = candidates(&mut executor, 0);
        assert_eq!(alone, candidates(&mut executor, 1), "{kind:?}");
        assert_eq!(alone, candidates(&mut executor, 6), "{kind:?}");
    }
}

#[test]
fn matrices_of_several_types_are_joined() {
    let tiny = tiny(json!({}));
    // As in a file of mixed types; gate and up differ in the last layer and are widened.
    let mixed = |name: &str| match name {
        "blk.1.ffn_gate.weight" => GgmlDType::Q5_0,
        "output.weight" => GgmlDType::Q6K,
        name if name.contains("attn_v") => GgmlDType::Q6K,
        name if name.contains("ffn_down") => GgmlDType::F16,
        _ => GgmlDType::Q4K,
    };
    let file = file("mixed", &tiny, mixed);
    let mut checkpoint = file.checkpoint().unwrap();
    let survey = checkpoint.survey(WeightDtype::Blocks).unwrap();
    let kept = Model::load(checkpoint.with_dtype(WeightDtype::Blocks)).unwrap();
    assert_eq!(survey.memory, kept.memory());
    let widened = load(&file, WeightDtype::F32).unwrap();
    let off = error(&kept, &widened);
    assert!(off > 1e-5 && off < 0.1, "{off:.1e}");
}

#[test]
fn a_file_without_blocks_is_f32() {
    let tiny = tiny(json!({}));
    let file = file("plain", &tiny, |_| GgmlDType::F16);
    let model = load(&file, WeightDtype::Blocks).unwrap();
    assert_eq!(model.info().formats.matrices, WeightDtype::F32);
    let logits = |model: Model| model.logits(&tokens()).unwrap();
    let widened = load(&file, WeightDtype::F32).unwrap();
    assert_eq!(logits(model), logits(widened));
}

#[test]
fn unsupported_types_and_scales_are_refused_by_tensor() {
    let tiny = tiny(json!({}));
    let file = file("refused", &tiny, |_| GgmlDType::Q4_0);
    let path = file.folder.join("model.gguf");
    let good = std::fs::read(&path).unwrap();
    let name = b"blk.1.ffn_up.weight";
    let found = good.windows(name.len()).position(|window| window == name);
    // Number of dimensions, two dimensions, type, offset.
    let kind = found.unwrap() + name.len() + 4 + 16;
    let mut bytes = good.clone();
    bytes[kind..kind + 4].copy_from_slice(&40_u32.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let message = common::refusal(file.checkpoint());
    let start = "model.gguf: blk.1.ffn_up.weight: expected the type F32, F16,";
    let named = message.starts_with(start) && message.ends_with("found NVFP4");
    assert!(named, "{message}");
    let offset = u64::from_le_bytes(good[kind + 4..kind + 12].try_into().unwrap());
    // The tensors' data ends with the file.
    let sizes = tiny.tensors.values().map(|(shape, values)| match shape.len() {
        2 => values.len() / 32 * 18,
        _ => values.len() * 4,
    });
    let data: usize = sizes.sum();
    let third = good.len() - data + offset as usize + 3 * 18;
    let mut bytes = good.clone();
    bytes[third..third + 2].copy_from_slice(&0x7C00_u16.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let message = common::refusal(load(&file, WeightDtype::Blocks));
    let expected = "blk.1.ffn_up.weight: the Q4_0 block of the numbers from 96 on has a scale";
    assert!(message.contains(expected), "{message}");
    for length in [good.len() - 1, good.len() - data + 5] {
        std::fs::write(&path, &good[..length]).unwrap();
        let message = common::refusal(load(&file, WeightDtype::Blocks));
        assert!(message.starts_with("model.gguf: corrupt"), "{message}");
    }
}
