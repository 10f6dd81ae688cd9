//! Surveys: a checkpoint's info and memory, computed without reading weights.

use crate::common::{Store, Tiny};
use crate::official::Case;
use asynclane_model::{Checkpoint, Files, Geometry, LoadError, Model, WeightDtype};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Every kind of checkpoint: fixtures, the demo model, random weights, and matrices large enough
/// for their own memory mappings.
fn checkpoints() -> Vec<(String, Checkpoint)> {
    let folders = Case::all().into_iter().map(|case| case.folder);
    let demo = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/goldens/checkpoint"
    );
    let mut all: Vec<(String, Checkpoint)> = folders
        .chain([demo.into()])
        .map(|folder| {
            let name = folder.display().to_string();
            (name, Checkpoint::open(&Files::folder(folder)).unwrap())
        })
        .collect();
    let geometry = Geometry::named("demo").unwrap();
    all.push(("random".to_owned(), geometry.checkpoint(5, 1).unwrap()));
    all.push(("large".to_owned(), Checkpoint::synthetic(LARGE, 1).unwrap()));
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

/// The dtype of a tiny checkpoint under `auto` whose file also has `bytes` of zeros in `stored`.
fn automatic(stored: Store, bytes: u64) -> WeightDtype {
    let tiny = Tiny::new(3, &json!({}));
    let file = tiny.safetensors(stored, |_| true);
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let (header, data) = file[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let (name, width) = match stored {
        Store::F32 => ("F32", 4),
        Store::Bf16 => ("BF16", 2),
        Store::F16 => ("F16", 2),
    };
    let offsets = [data.len() as u64, data.len() as u64 + bytes];
    header["more"] = json!({"dtype": name, "shape": [bytes / width], "data_offsets": offsets});
    let header = header.to_string().into_bytes();
    let start = [&(header.len() as u64).to_le_bytes(), &header[..], data].concat();

    let folder = format!("asynclane-{}-automatic-{name}-{bytes}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), tiny.config.to_string()).unwrap();
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
    assert_eq!(automatic(Store::Bf16, large), WeightDtype::Bf16);
    assert_eq!(automatic(Store::Bf16, large / 2), WeightDtype::F32);
    assert_eq!(automatic(Store::F16, large), WeightDtype::F32);
    assert_eq!(automatic(Store::F32, large), WeightDtype::F32);
}

#[test]
fn shorter_numbers_take_less_memory() {
    let mut checkpoint = Checkpoint::synthetic(LARGE, 1).unwrap();
    let mut bytes = |dtype| checkpoint.survey(dtype).unwrap().memory.weights;
    let [f32, bf16, int8, int4] = WeightDtype::ALL.map(&mut bytes);
    // The embedding table stays f32; matrices are packed in complete panels.
    let table = 4 * 5000 * 512;
    assert!(
        (f32 - table) < 21 * (bf16 - table) / 10 && bf16 < f32,
        "{bf16} of {f32}"
    );
    assert!(
        (bf16 - table) < 21 * (int8 - table) / 10 && int8 < bf16,
        "{int8} of {bf16}"
    );
    // Five bits a weight.
    assert!(
        8 * (int4 - table) < 6 * (int8 - table) && int4 < int8,
        "{int4} of {int8}"
    );
    let matrices = 512 * (4 * 512 + 3 * 1568 + 5000);
    let others = 4 * (3 * 512 + 64 * 64);
    let exact = table + 4 * matrices + others;
    assert!(
        f32 >= exact && f32 < exact + exact / 100,
        "{f32} for {exact}"
    );
}

#[test]
fn a_survey_reports_the_errors_of_loading() {
    let demo = |name: &str| {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/goldens/checkpoint"
        );
        std::fs::read(format!("{folder}/{name}")).unwrap()
    };
    let config = String::from_utf8(demo("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["mlp_hidden_size"] = 500.into();
    let files = Files::memory([
        ("config.json", config.to_string().into_bytes()),
        ("model.safetensors", demo("model.safetensors")),
    ]);
    let mut checkpoint = Checkpoint::open(&files).unwrap();
    let error = checkpoint.survey(WeightDtype::F32).unwrap_err();
    assert!(matches!(error, LoadError::Shape { .. }), "{error}");
}

#[test]
fn the_callback_counts_every_byte_once_and_none_in_a_survey() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/goldens/checkpoint"
    );
    let read = Arc::new(Mutex::new(Vec::new()));
    let seen = read.clone();
    let checkpoint = Checkpoint::open(&Files::folder(folder)).unwrap();
    let stored = checkpoint.stored_bytes();
    let mut checkpoint = checkpoint.with_watch(move |bytes| seen.lock().unwrap().push(bytes));
    checkpoint.survey(WeightDtype::F32).unwrap();
    assert!(read.lock().unwrap().is_empty());
    Model::load(checkpoint).unwrap();
    assert_eq!(read.lock().unwrap().iter().sum::<u64>(), stored);
}
