//! Refused checkpoints and their error messages.

use crate::common::{Store, Tiny, load};
use asynclane_model::{Checkpoint, Files, LoadError, Model, WeightDtype};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Named = BTreeMap<String, Vec<u8>>;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &Named) -> Self {
        let path = std::env::temp_dir().join(format!("asynclane-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, bytes) in files {
            std::fs::write(path.join(file), bytes).unwrap();
        }
        Self(path)
    }

    fn load(&self) -> Result<Model, LoadError> {
        Model::load(Checkpoint::open(&Files::folder(&self.0))?)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder in the temporary directory does not fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tiny() -> Tiny {
    Tiny::new(1, &json!({}))
}

/// The one-line error of loading these files; checks that folder and memory give the same one.
fn refusal(name: &str, files: Named) -> String {
    let folder = Folder::new(name, &files);
    let mapped = folder
        .load()
        .err()
        .expect("refused from a folder")
        .to_string();
    let memory = load(files).err().expect("refused from memory").to_string();
    assert_eq!(
        mapped.replace(&folder.path().display().to_string(), "the embedded files"),
        memory
    );
    assert!(!memory.contains('\n'), "{memory}");
    memory
}

/// The error of loading a checkpoint with one key changed.
fn refused_key(key: &str, value: Value) -> String {
    let mut tiny = tiny();
    tiny.config[key] = value;
    refusal(key, tiny.files(Store::F32))
}

fn without(mut files: Named, name: &str) -> Named {
    files.remove(name).expect("a file of this name");
    files
}

#[test]
fn a_folder_and_memory_load_the_same_model() {
    let tiny = tiny();
    for (name, files) in [
        ("single", tiny.files(Store::Bf16)),
        ("shards", tiny.sharded(Store::F16)),
    ] {
        let mapped = Folder::new(name, &files).load().unwrap();
        let memory = load(files).unwrap();
        let tokens = [3, 1, 4, 1, 5];
        assert_eq!(
            mapped.logits(&tokens).unwrap(),
            memory.logits(&tokens).unwrap()
        );
        assert_eq!(mapped.info(), memory.info());
        assert_eq!(mapped.warnings(), [] as [&str; 0]);
    }
}

#[test]
fn missing_files_are_named() {
    let files = tiny().files(Store::F32);
    assert_eq!(
        refusal("no-config", without(files.clone(), "config.json")),
        "config.json: not found in the embedded files"
    );
    assert_eq!(
        refusal("no-weights", without(files, "model.safetensors")),
        "model.safetensors or model.safetensors.index.json: not found in the embedded files"
    );
    let shard = "model-00002-of-00003.safetensors";
    assert_eq!(
        refusal("no-shard", without(tiny().sharded(Store::F32), shard)),
        format!("{shard}: not found in the embedded files")
    );
    let nowhere = Checkpoint::open(&Files::folder("/no/such/folder"))
        .err()
        .unwrap()
        .to_string();
    assert_eq!(nowhere, "config.json: not found in /no/such/folder");
}

#[test]
fn pickles_are_refused_by_name() {
    let mut files = without(tiny().files(Store::F32), "model.safetensors");
    files.insert("pytorch_model.bin".to_owned(), b"\x80\x02".to_vec());
    let error = refusal("pickle", files);
    assert!(
        error.starts_with("pytorch_model.bin: pickle files can run code"),
        "{error}"
    );
}

#[test]
fn corrupt_files_are_named() {
    let files = tiny().files(Store::F32);
    let whole = &files["model.safetensors"];
    let mut flipped = whole.clone();
    flipped[9] = b'!';
    let mut endless = whole.clone();
    endless[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let cuts = [0, 4, 8, 100, whole.len() - 1].map(|len| whole[..len].to_vec());
    for (i, bytes) in cuts.into_iter().chain([flipped, endless]).enumerate() {
        let mut files = files.clone();
        files.insert("model.safetensors".to_owned(), bytes);
        let error = refusal(&format!("corrupt-{i}"), files);
        assert!(
            error.starts_with("model.safetensors: corrupt or truncated: "),
            "{error}"
        );
    }
    for (i, text) in ["{", "[]", "", "\u{7f}"].into_iter().enumerate() {
        let mut files = files.clone();
        files.insert("config.json".to_owned(), text.as_bytes().to_vec());
        let error = refusal(&format!("config-{i}"), files);
        assert!(
            error.starts_with("config.json: corrupt or truncated: "),
            "{error}"
        );
    }
}

#[test]
fn the_index_must_name_plain_files() {
    let index = "model.safetensors.index.json";
    for (i, shard) in ["../x.safetensors", "/etc/passwd", "a/b", "..", ""]
        .into_iter()
        .enumerate()
    {
        let mut files = tiny().sharded(Store::F32);
        let text = json!({"weight_map": {"a": shard}}).to_string();
        files.insert(index.to_owned(), text.into_bytes());
        assert_eq!(
            refusal(&format!("outside-{i}"), files),
            format!("{index}: weight_map: expected shards inside the folder, found {shard:?}")
        );
    }
    let mut files = tiny().sharded(Store::F32);
    files.insert(index.to_owned(), b"{}".to_vec());
    let expected = "expected an object from tensor names to file names, found nothing";
    assert_eq!(
        refusal("no-map", files),
        format!("{index}: weight_map: {expected}")
    );
}

#[test]
fn missing_misshapen_and_non_finite_tensors_are_refused() {
    let name = "model.transformer.blocks.1.k_proj.weight";
    let mut lacking = tiny();
    lacking.tensors.remove(name);
    let message = format!("{name}: expected a tensor of shape [48, 48], found none");
    let error = refusal("lacking", lacking.files(Store::F32));
    assert_eq!(error, format!("model.safetensors: {message}"));
    let error = refusal("lacking-shard", lacking.sharded(Store::F32));
    assert_eq!(error, format!("model.safetensors.index.json: {message}"));

    let mut misshapen = tiny();
    misshapen
        .tensors
        .insert(name.to_owned(), (vec![24, 48], vec![0.0; 24 * 48]));
    let error = refusal("misshapen", misshapen.files(Store::F32));
    assert_eq!(
        error,
        format!("model.safetensors: {name}: expected shape [48, 48], found [24, 48]")
    );

    for (bad, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut garbage = tiny();
        garbage.tensors.get_mut(name).unwrap().1[50] = bad;
        let error = refusal("garbage", garbage.files(Store::F32));
        let message = format!("expected finite numbers, found {shown} at element 50");
        assert_eq!(error, format!("model.safetensors: {name}: {message}"));
    }
}

#[test]
fn other_number_types_are_refused() {
    use safetensors::tensor::{Dtype, TensorView, serialize};
    let name = "model.transformer.wte.weight";
    let bytes = vec![0; 61 * 48 * 8];
    let view = TensorView::new(Dtype::F64, vec![61, 48], &bytes).unwrap();
    let mut files = tiny().files(Store::F32);
    files.insert(
        "model.safetensors".to_owned(),
        serialize([(name, view)], None).unwrap(),
    );
    assert_eq!(
        refusal("dtype", files),
        format!("model.safetensors: {name}: expected BF16, F16 or F32, found F64")
    );
}

#[test]
fn unknown_architectures_name_what_is_supported() {
    let expected = "expected one of LLaDAModelLM, DreamModel, WeDLMForCausalLM, SDARForCausalLM, \
                    SDARMoeForCausalLM, Fast_dLLM_QwenForCausalLM, LLaDA2MoeModelLM, \
                    LLaDAMoEModelLM, LLaDAMoEModel, \
                    Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, LlamaForCausalLM, \
                    DiffusionGemmaForBlockDiffusion";
    assert_eq!(
        refused_key("architectures", json!(["GPT2LMHeadModel"])),
        format!("config.json: architectures: {expected}, found [\"GPT2LMHeadModel\"]")
    );
    let mut tiny = tiny();
    tiny.config["architectures"] = Value::Null;
    assert!(
        load(tiny.files(Store::F32)).is_ok(),
        "the model type is enough"
    );
    tiny.config["model_type"] = json!("gpt2");
    let error = refusal("model-type", tiny.files(Store::F32));
    let types = "expected one of llada, Dream, wedlm, sdar, sdar_moe, Fast_dLLM_Qwen, llada2_moe, \
                 lladamoe, qwen2, qwen3, qwen3_moe, llama, diffusion_gemma";
    let message = format!("config.json: model_type: {types}, found \"gpt2\"");
    assert_eq!(error, message);
    tiny.config["model_type"] = Value::Null;
    let error = refusal("no-type", tiny.files(Store::F32));
    let message = format!("config.json: architectures: {expected}, found nothing");
    assert_eq!(error, message);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn unsupported_settings_are_refused_by_key() {
    for (key, value, expected) in [
        (
            "block_type",
            json!("sequential"),
            "\"llama\", found \"sequential\"",
        ),
        (
            "layer_norm_type",
            json!("default"),
            "\"rms\", found \"default\"",
        ),
        (
            "activation_type",
            json!("swiglu"),
            "\"silu\", found \"swiglu\"",
        ),
        ("alibi", json!(true), "false, found true"),
        ("rope", json!(false), "true, found false"),
        (
            "rope_scaling",
            json!({"factor": 2}),
            "nothing, found {\"factor\":2}",
        ),
        (
            "include_bias",
            json!(true),
            "false beside include_bias, found nothing",
        ),
        ("d_model", json!(-1), "a positive whole number, found -1"),
        (
            "d_model",
            json!(u32::MAX - 1),
            "a positive whole number of at most 16777216, found 4294967294",
        ),
        (
            "n_layers",
            json!(1_u64 << 40),
            "a positive whole number, found 1099511627776",
        ),
        (
            "d_model",
            Value::Null,
            "a positive whole number, found nothing",
        ),
        (
            "n_layers",
            json!("2"),
            "a positive whole number, found \"2\"",
        ),
        (
            "n_heads",
            json!(7),
            "a divisor of d_model 48, even heads, found 7",
        ),
        ("n_kv_heads", json!(3), "a divisor of n_heads 4, found 3"),
        ("rope_theta", json!(0), "a positive number, found 0"),
        ("vocab_size", json!(62), "3 to embedding_size 61, found 62"),
        ("mask_token_id", json!(61), "a token id below 61, found 61"),
        (
            "max_sequence_length",
            json!(1 << 21),
            "at most 1048576, found 2097152",
        ),
        // The family's default id is outside this small vocabulary.
        (
            "mask_token_id",
            Value::Null,
            "a token id below 61, found nothing",
        ),
        ("mask_token_id", json!([1, 2]), "one token id, found [1,2]"),
        (
            "eos_token_id",
            json!("end"),
            "a token id below 61, found \"end\"",
        ),
        ("weight_tying", json!(1), "true or false, found 1"),
    ] {
        let error = refused_key(key, value);
        let key = if key == "include_bias" {
            "bias_for_layer_norm"
        } else {
            key
        };
        assert_eq!(error, format!("config.json: {key}: expected {expected}"));
    }
}

/// Sizes that a few digits of a configuration state, and that no checkpoint has.
#[test]
fn products_of_sizes_are_bounded_before_anything_is_allocated() {
    let survey = |config: &Value| {
        let mut checkpoint = Checkpoint::synthetic(&config.to_string(), 1).unwrap();
        checkpoint.survey(WeightDtype::F32).unwrap_err().to_string()
    };
    let layers = json!({
        "architectures": ["LLaDAModelLM"], "d_model": 4, "n_heads": 2, "n_layers": 1 << 24,
        "mlp_ratio": 1, "vocab_size": 8, "max_sequence_length": 8, "mask_token_id": 5,
        "eos_token_id": 1,
    });
    let expected = "expected a model of at most 262144 tensors, found more";
    assert!(survey(&layers).ends_with(expected), "{}", survey(&layers));
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/model/fixtures/families/llada2-odd/config.json"
    );
    let mut shared: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    shared["num_shared_experts"] = json!(u32::MAX);
    assert!(survey(&shared).starts_with("config.json: num_shared_experts: expected at most "));
}

#[test]
fn family_ids_are_the_fallback() {
    let config = json!({
        "architectures": ["LLaDAModelLM"], "d_model": 4, "n_heads": 2, "n_layers": 1,
        "mlp_ratio": 1, "vocab_size": 126_464, "max_sequence_length": 8,
    });
    let model = Model::load(Checkpoint::synthetic(&config.to_string(), 1).unwrap()).unwrap();
    assert_eq!(
        (
            model.info().vocabulary.mask,
            model.info().vocabulary.end.as_slice()
        ),
        (Some(126_336), &[126_081][..])
    );
    let mut tiny = tiny();
    tiny.config["eos_token_id"] = json!([1, 4]);
    assert_eq!(tiny.model().info().vocabulary.end, [1, 4]);
}

#[test]
fn an_unused_tensor_is_a_warning() {
    let mut tiny = tiny();
    let mut add = |name: &str| {
        tiny.tensors
            .insert(name.to_owned(), (vec![2], vec![0.0; 2]))
    };
    add("model.transformer.rotary_emb.inv_freq");
    add("model.transformer.extra.weight");
    let model = load(tiny.files(Store::F32)).unwrap();
    assert_eq!(
        model.warnings(),
        ["model.transformer.extra.weight: stored but not used"]
    );
    // A tied checkpoint may store the head too.
    let mut tied = Tiny::new(2, &json!({}));
    tied.config["weight_tying"] = json!(true);
    assert_eq!(
        load(tied.files(Store::F32)).unwrap().warnings(),
        [] as [&str; 0]
    );
}

#[test]
fn parameters_are_counted_once() {
    let count = |overrides: Value| {
        let tiny = Tiny::new(1, &overrides);
        let stored: usize = tiny.tensors.values().map(|(_, values)| values.len()).sum();
        assert_eq!(tiny.model().info().parameters, stored);
        stored
    };
    assert_eq!(
        count(json!({})) - count(json!({"weight_tying": true})),
        61 * 48
    );
}

/// A pipe without a writer would wait for ever, and a device has no end.
#[test]
fn only_regular_files_are_opened() {
    for name in ["config.json", "model.safetensors"] {
        let files = without(tiny().files(Store::F32), name);
        let folder = Folder::new(&format!("special-{name}"), &files);
        let path = folder.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()));
        let refused = |folder: &Folder| folder.load().err().expect("refused").to_string();
        let expected = format!(
            "{}: cannot be read: expected a regular file, found another kind",
            path.display()
        );
        assert_eq!(refused(&folder), expected);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(refused(&folder), expected);
    }
}

/// The table of rotary angles is computed before any weight is read.
#[test]
fn a_table_of_angles_without_bound_is_refused() {
    let mut tiny = tiny();
    tiny.config["max_sequence_length"] = json!(1 << 20);
    tiny.config["d_model"] = json!(1 << 24);
    tiny.config["n_heads"] = json!(1);
    tiny.config["n_kv_heads"] = json!(1);
    let error = refusal("angles", tiny.files(Store::F32));
    assert!(error.contains("at most 268435456 rotary angles"), "{error}");
}
