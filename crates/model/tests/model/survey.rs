//! Surveys: a checkpoint's info and memory, computed without reading weights.

use crate::common::{DEMO, Store, Tiny};
use crate::official::Case;
use asynclane_model::{Checkpoint, Files, Geometry, LoadError, Model, WeightDtype};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Every kind of checkpoint: fixtures, the demo model, random weights, and matrices large enough
/// for their own memory mappings.
fn checkpoints() -> Vec<(String, Checkpoint)> {
    let cases = Case::all().into_iter();
    let mut all: Vec<_> = cases.map(|case| (case.name.clone(), case.checkpoint())).collect();
    let demo = Checkpoint::open(&Files::folder(DEMO)).unwrap();
    let random = Geometry::named("demo").unwrap().checkpoint(5, 1).unwrap();
    let large = Checkpoint::synthetic(LARGE, 1).unwrap();
    all.extend(
        [("demo", demo), ("random", random), ("large", large)].map(|(n, c)| (n.to_owned(), c)),
    );
    all
}

const LARGE: &str = r#"{"architectures": ["LLaDAModelLM"], "d_model": 512, "n_heads": 8,
    "n_layers": 1, "mlp_hidden_size": 1568, "vocab_size": 5000, "max_sequence_length": 64,
    "mask_token_id": 5, "eos_token_id": 1}"#;

#[test]
fn a_survey_matches_loading() {
    for dtype in WeightDtype::ALL {
        for (name, mut checkpoint) in checkpoints() {
            let survey = checkpoint.survey(dtype);
            let loaded = Model::load(checkpoint.with_dtype(dtype));
            if let Err(LoadError::Group { .. }) = survey {
                assert!(matches!(loaded, Err(LoadError::Group { .. })), "{name}");
                continue;
            }
            let (survey, model) = (survey.unwrap(), loaded.unwrap());
            assert_eq!(&survey.info, model.info(), "{name}");
            assert_eq!(survey.memory, model.memory(), "{name} in {}", dtype.name());
            assert!(survey.memory.loading >= survey.memory.weights);
        }
    }
}

/// The dtype under `auto` of a checkpoint whose file also has `bytes` of zeros in the type `dtype`.
pub fn automatic(config: &Value, file: &[u8], dtype: &str, bytes: u64) -> WeightDtype {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let (header, data) = file[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let width = match dtype {
        "F8_E4M3" => 1,
        "F32" | "I32" => 4,
        _ => 2,
    };
    let offsets = [data.len() as u64, data.len() as u64 + bytes];
    header["more"] = json!({"dtype": dtype, "shape": [bytes / width], "data_offsets": offsets});
    let header = header.to_string().into_bytes();
    let start = [&(header.len() as u64).to_le_bytes(), &header[..], data].concat();

    let folder = format!("asynclane-{}-automatic-{dtype}-{bytes}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let path = folder.join("model.safetensors");
    std::fs::write(&path, &start).unwrap();
    // The zeros are a hole and take no space.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(start.len() as u64 + bytes).unwrap();
    let checkpoint = Checkpoint::open(&Files::folder(folder.clone()));
    let survey = checkpoint.unwrap().survey(WeightDtype::Blocks);
    std::fs::remove_dir_all(folder).unwrap();
    survey.unwrap().info.formats.matrices
}

#[test]
fn only_large_weights_in_bf16_stay_so_by_themselves() {
    let large = 512 << 20;
    let tiny = Tiny::new(3, &json!({}));
    let file = |store| tiny.safetensors(store, |_| true);
    let plain = |store, name, bytes| automatic(&tiny.config, &file(store), name, bytes);
    assert_eq!(plain(Store::Bf16, "BF16", large), WeightDtype::Bf16);
    assert_eq!(plain(Store::Bf16, "BF16", large / 2), WeightDtype::F32);
    assert_eq!(plain(Store::F16, "F16", large), WeightDtype::F32);
    assert_eq!(plain(Store::F32, "F32", large), WeightDtype::F32);
}

#[test]
fn large_weights_in_f16_are_bf16_on_a_device() {
    let on_device = |width: usize, stored: &str, asked| {
        let mut config: Value = serde_json::from_str(LARGE).unwrap();
        config["d_model"] = json!(width);
        config["vocab_size"] = json!(100_000);
        config["torch_dtype"] = json!(stored);
        Checkpoint::planned(&config.to_string()).unwrap().dtype_on_device(asked)
    };
    let auto = WeightDtype::Blocks;
    assert_eq!(on_device(2048, "float16", auto), WeightDtype::Bf16);
    assert_eq!(on_device(2048, "float16", WeightDtype::F32), WeightDtype::F32);
    // These are exact on every device.
    for (width, stored) in [(256, "float16"), (2048, "bfloat16"), (2048, "float32")] {
        assert_eq!(on_device(width, stored, auto), auto, "{width} {stored}");
    }
}

#[test]
fn shorter_numbers_take_less_memory() {
    let mut checkpoint = Checkpoint::synthetic(LARGE, 1).unwrap();
    let mut bytes = |dtype| checkpoint.survey(dtype).unwrap().memory.weights;
    let [f32, bf16, int8, int4] = WeightDtype::ALL.map(&mut bytes);
    // The embedding table stays f32; matrices are packed in complete panels.
    let table = 4 * 5000 * 512;
    for (long, short) in [(f32, bf16), (bf16, int8)] {
        let half = long - table < 21 * (short - table) / 10 && short < long;
        assert!(half, "{short} of {long}");
    }
    // Five bits a weight.
    let five = 8 * (int4 - table) < 6 * (int8 - table) && int4 < int8;
    assert!(five, "{int4} of {int8}");
    let matrices = 512 * (4 * 512 + 3 * 1568 + 5000);
    let others = 4 * (3 * 512 + 64 * 64);
    let exact = table + 4 * matrices + others;
    assert!((exact..exact + exact / 100).contains(&f32), "{f32} for {exact}");
}

#[test]
fn shorter_sequences_take_less_memory_and_have_the_same_logits() {
    let limit = 8;
    let tokens: Vec<u32> = (0..=limit as u32).collect();
    for (name, mut whole) in checkpoints() {
        let mut short = checkpoints().into_iter().find(|(other, _)| *other == name).unwrap().1;
        short.limit(Some(limit));
        let memory = [&mut whole, &mut short].map(|c| c.survey(WeightDtype::F32).unwrap().memory);
        assert!(memory[1].weights < memory[0].weights, "{name}");
        let [whole, short] = [whole, short].map(|checkpoint| Model::load(checkpoint).unwrap());
        assert_eq!(short.memory(), memory[1], "{name}");
        assert_eq!(short.info().max_positions, limit, "{name}");
        let logits = |model: &Model| model.logits(&tokens[..limit]).unwrap();
        assert_eq!(logits(&short), logits(&whole), "{name}");
        let error = short.logits(&tokens).unwrap_err().to_string();
        assert!(error.contains("9 tokens, expected 1..=8"), "{name}: {error}");
    }
}

#[test]
fn a_survey_reports_the_errors_of_loading() {
    let mut tiny = Tiny::new(1, &json!({}));
    tiny.config["mlp_hidden_size"] = json!(500);
    let error = tiny.checkpoint().survey(WeightDtype::F32).unwrap_err();
    assert!(matches!(error, LoadError::Shape { .. }), "{error}");
}

#[test]
fn the_callback_counts_every_byte_once_and_none_in_a_survey() {
    let read = Arc::new(Mutex::new(Vec::new()));
    let seen = read.clone();
    let checkpoint = Checkpoint::open(&Files::folder(DEMO)).unwrap();
    let stored = checkpoint.stored_bytes();
    let mut checkpoint = checkpoint.with_watch(move |bytes| seen.lock().unwrap().push(bytes));
    checkpoint.survey(WeightDtype::F32).unwrap();
    assert!(read.lock().unwrap().is_empty());
    Model::load(checkpoint).unwrap();
    assert_eq!(read.lock().unwrap().iter().sum::<u64>(), stored);
}
