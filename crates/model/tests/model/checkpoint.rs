//! Refused checkpoints and their error messages.

use crate::common::{self, Named, Store, Tiny, load};
use crate::official::Case;
use asynclane_model::{Checkpoint, Files, LoadError, Model, WeightDtype};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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
    let mapped = folder.load().err().expect("refused from a folder");
    let mapped = mapped.to_string();
    let place = folder.path().display().to_string();
    let memory = common::refusal(load(files));
    assert_eq!(mapped.replace(&place, "the embedded files"), memory);
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
    for (name, files) in [("single", tiny.files(Store::Bf16)), ("shards", tiny.sharded(Store::F16))]
    {
        let mapped = Folder::new(name, &files).load().unwrap();
        let memory = load(files).unwrap();
        let logits = |model: &Model| model.logits(&[3, 1, 4, 1, 5]).unwrap();
        assert_eq!(logits(&mapped), logits(&memory));
        assert_eq!(mapped.info(), memory.info());
        assert_eq!(mapped.warnings(), [] as [&str; 0]);
    }
}

#[test]
fn missing_files_are_named() {
    let (files, sharded) = (tiny().files(Store::F32), tiny().sharded(Store::F32));
    let weights = "model.safetensors or model.safetensors.index.json";
    let shard = "model-00002-of-00003.safetensors";
    for (files, name, expected) in [
        (files.clone(), "config.json", "config.json"),
        (files, "model.safetensors", weights),
        (sharded, shard, shard),
    ] {
        let error = refusal(&format!("no-{name}"), without(files, name));
        assert_eq!(error, format!("{expected}: not found in the embedded files"));
    }
    let nowhere = common::refusal(Checkpoint::open(&Files::folder("/no/such/folder")));
    assert_eq!(nowhere, "config.json: not found in /no/such/folder");
}

/// A whole model has one file, of any name but an adapter's.
#[test]
fn weights_without_an_index_are_the_only_file() {
    let whole = tiny().files(Store::F32);
    let named = |names: &[&str]| {
        let mut files = without(whole.clone(), "model.safetensors");
        let weights = &whole["model.safetensors"];
        files.extend(names.iter().map(|name| ((*name).to_owned(), weights.clone())));
        files
    };
    for names in [
        &["model-00001-of-00001.safetensors"][..],
        &["llada.fp32.safetensors", "adapter_model.safetensors"],
    ] {
        load(named(names)).unwrap_or_else(|error| panic!("{names:?}: {error}"));
        Folder::new("alone", &named(names)).load().unwrap();
    }
    let missing =
        "model.safetensors or model.safetensors.index.json: not found in the embedded files";
    for names in [&["a.safetensors", "b.safetensors"][..], &["model-00002-of-00003.safetensors"]] {
        let error = refusal("unnamed", named(names));
        assert_eq!(error, format!("{missing}, which has {}", names.join(", ")));
    }
    assert_eq!(refusal("adapter", named(&["adapter_model.safetensors"])), missing);
}

/// Python writes such a number as a word, which JSON does not have.
#[test]
fn a_number_that_is_not_finite_counts_as_absent() {
    let with = |key: &str, number: &str| {
        let mut tiny = tiny();
        tiny.config[key] = json!("NUMBER");
        let text = tiny.config.to_string().replace("\"NUMBER\"", number);
        let mut files = tiny.files(Store::F32);
        files.insert("config.json".to_owned(), text.into_bytes());
        files
    };
    for number in ["NaN", "Infinity", "-Infinity"] {
        load(with("init_std", number)).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    let error = common::refusal(load(with("n_layers", "Infinity")));
    assert_eq!(error, "config.json: n_layers: expected a positive whole number, found nothing");
}

#[test]
fn pickles_are_refused_by_name() {
    let mut files = without(tiny().files(Store::F32), "model.safetensors");
    files.insert("pytorch_model.bin".to_owned(), b"\x80\x02".to_vec());
    let error = refusal("pickle", files);
    let expected = "pytorch_model.bin: pickle files can run code";
    assert!(error.starts_with(expected), "{error}");
}

/// As `git clone` leaves large files without Git LFS.
#[test]
fn pointers_of_git_lfs_are_named() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    for name in ["config.json", "model.safetensors"] {
        let mut files = tiny().files(Store::F32);
        files.insert(name.to_owned(), pointer.to_vec());
        let error = refusal(&format!("pointer-{name}"), files);
        let expected =
            "expected the file, found a pointer of Git LFS: run `git lfs pull` in its folder";
        assert_eq!(error, format!("{name}: {expected}"));
    }
    let folder = Folder::new("pointer", &Named::from([("a.gguf".to_owned(), pointer.to_vec())]));
    let error = folder.load().err().expect("refused").to_string();
    assert!(error.starts_with("a.gguf: expected the file, found a pointer"), "{error}");
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
    let weights = cuts.into_iter().chain([flipped, endless]);
    let weights = weights.map(|bytes| ("model.safetensors", bytes));
    let configs = ["{", "[]", "", "\u{7f}"].map(|text| ("config.json", text.as_bytes().to_vec()));
    for (i, (name, bytes)) in weights.chain(configs).enumerate() {
        let mut files = files.clone();
        files.insert(name.to_owned(), bytes);
        let error = refusal(&format!("corrupt-{i}"), files);
        let expected = format!("{name}: corrupt or truncated: ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn the_index_must_name_plain_files() {
    let index = "model.safetensors.index.json";
    let outside = ["../x.safetensors", "/etc/passwd", "a/b", "..", ""];
    let outside = outside.map(|shard| {
        let map = json!({"weight_map": {"a": shard}}).to_string();
        let expected = format!("shards inside the folder, found {shard:?}");
        (map, expected)
    });
    let none = "an object from tensor names to file names, found nothing";
    let none = ("{}".to_owned(), none.to_owned());
    for (i, (text, expected)) in outside.into_iter().chain([none]).enumerate() {
        let mut files = tiny().sharded(Store::F32);
        files.insert(index.to_owned(), text.into_bytes());
        let error = refusal(&format!("outside-{i}"), files);
        assert_eq!(error, format!("{index}: weight_map: expected {expected}"));
    }
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

    for (change, value, expected) in [
        ("shape", 0.0, "shape [48, 48], found [24, 48]"),
        ("NaN", f32::NAN, "finite numbers, found NaN at element 50"),
        ("inf", f32::INFINITY, "finite numbers, found inf at element 50"),
    ] {
        let mut wrong = tiny();
        let tensor = wrong.tensors.get_mut(name).unwrap();
        tensor.1[50] = value;
        if change == "shape" {
            *tensor = (vec![24, 48], vec![0.0; 24 * 48]);
        }
        let error = refusal(change, wrong.files(Store::F32));
        let expected = format!("model.safetensors: {name}: expected {expected}");
        assert_eq!(error, expected);
    }
}

#[test]
fn other_number_types_are_refused() {
    use safetensors::tensor::{Dtype, TensorView, serialize};
    let name = "model.transformer.wte.weight";
    let bytes = vec![0; 61 * 48 * 8];
    let view = TensorView::new(Dtype::F64, vec![61, 48], &bytes).unwrap();
    let mut files = tiny().files(Store::F32);
    let weights = serialize([(name, view)], None).unwrap();
    files.insert("model.safetensors".to_owned(), weights);
    let expected = format!("model.safetensors: {name}: expected BF16, F16 or F32, found F64");
    assert_eq!(refusal("dtype", files), expected);
}

#[test]
fn unknown_architectures_name_what_is_supported() {
    let expected = "expected one of LLaDAModelLM, DreamModel, WeDLMForCausalLM, SDARForCausalLM, \
                    SDARMoeForCausalLM, Fast_dLLM_QwenForCausalLM, A2DQwen3LMHeadModel, \
                    CoDALanguageModel, RND1LM, StableDiffcoderForCausalLM, NemotronLabsDiffusionModel, \
                    MinistralDiffEncoderModel, \
                    LLaDA2MoeModelLM, LLaDAMoEModelLM, LLaDAMoEModel, \
                    Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, LlamaForCausalLM, \
                    DiffusionGemmaForBlockDiffusion";
    let error = refused_key("architectures", json!(["GPT2LMHeadModel"]));
    let found = "found [\"GPT2LMHeadModel\"]";
    assert_eq!(error, format!("config.json: architectures: {expected}, {found}"));
    let mut tiny = tiny();
    tiny.config["architectures"] = Value::Null;
    let loaded = load(tiny.files(Store::F32));
    assert!(loaded.is_ok(), "the model type is enough");
    tiny.config["model_type"] = json!("gpt2");
    let error = refusal("model-type", tiny.files(Store::F32));
    let types = "expected one of llada, Dream, wedlm, sdar, sdar_moe, Fast_dLLM_Qwen, a2d-qwen3, CoDA, rnd1, stable_diffcoder, nemotron_labs_diffusion, \
                 llada2_moe, lladamoe, qwen2, qwen3, qwen3_moe, llama, diffusion_gemma";
    let message = format!("config.json: model_type: {types}, found \"gpt2\"");
    assert_eq!(error, message);
    tiny.config["model_type"] = Value::Null;
    let error = refusal("no-type", tiny.files(Store::F32));
    let message = format!("config.json: architectures: {expected}, found nothing");
    assert_eq!(error, message);
}

/// Key, value, and the end of the error.
const SETTINGS: &str = r#"
block_type | "sequential" | "llama", found "sequential"
layer_norm_type | "default" | "rms", found "default"
activation_type | "swiglu" | "silu", found "swiglu"
alibi | true | false, found true
rope | false | true, found false
rope_scaling | {"factor":2} | nothing, found {"factor":2}
include_bias | true | false beside include_bias, found nothing
d_model | -1 | a positive whole number, found -1
d_model | 4294967294 | a positive whole number of at most 16777216, found 4294967294
n_layers | 1099511627776 | a positive whole number, found 1099511627776
d_model | null | a positive whole number, found nothing
n_layers | "2" | a positive whole number, found "2"
n_heads | 7 | a divisor of d_model 48, even heads, found 7
n_kv_heads | 3 | a divisor of n_heads 4, found 3
rope_theta | 0 | a positive number, found 0
vocab_size | 62 | 3 to embedding_size 61, found 62
mask_token_id | 61 | a token id below 61, found 61
max_sequence_length | 2097152 | at most 1048576, found 2097152
mask_token_id | null | a token id below 61, found nothing
mask_token_id | [1,2] | one token id, found [1,2]
eos_token_id | "end" | a token id below 61, found "end"
weight_tying | 1 | true or false, found 1
"#;

/// The family's default id of a mask is outside this small vocabulary.
#[test]
fn unsupported_settings_are_refused_by_key() {
    for case in SETTINGS.lines().skip(1) {
        let cells: Vec<&str> = case.split(" | ").collect();
        let error = refused_key(cells[0], serde_json::from_str(cells[1]).unwrap());
        let key = match cells[0] {
            "include_bias" => "bias_for_layer_norm",
            key => key,
        };
        let expected = format!("config.json: {key}: expected {}", cells[2]);
        assert_eq!(error, expected);
    }
}

/// Sizes that a few digits of a configuration state, and that no checkpoint has.
#[test]
fn products_of_sizes_are_bounded_before_anything_is_allocated() {
    let survey = |config: &Value| {
        let mut checkpoint = Checkpoint::synthetic(&config.to_string(), 1).unwrap();
        checkpoint.survey(WeightDtype::F32).unwrap_err().to_string()
    };
    let layers = json!({"architectures": ["LLaDAModelLM"], "d_model": 4, "n_heads": 2,
        "n_layers": 1 << 24, "mlp_ratio": 1, "vocab_size": 8, "max_sequence_length": 8,
        "mask_token_id": 5, "eos_token_id": 1});
    let expected = "expected a model of at most 262144 tensors, found more";
    assert!(survey(&layers).ends_with(expected), "{}", survey(&layers));
    let mut shared = Case::named("llada2-odd").config();
    shared["num_shared_experts"] = json!(u32::MAX);
}

#[test]
fn family_ids_are_the_fallback() {
    let config = json!({"architectures": ["LLaDAModelLM"], "d_model": 4, "n_heads": 2,
        "n_layers": 1, "mlp_ratio": 1, "vocab_size": 126_464, "max_sequence_length": 8});
    let model = Model::load(Checkpoint::synthetic(&config.to_string(), 1).unwrap()).unwrap();
    let info = model.info();
    assert_eq!((info.vocabulary.mask, &*info.vocabulary.end), (Some(126_336), &[126_081][..]));
    let mut tiny = tiny();
    tiny.config["eos_token_id"] = json!([1, 4]);
    assert_eq!(tiny.model().info().vocabulary.end, [1, 4]);
}

#[test]
fn an_unused_tensor_is_a_warning() {
    let mut tiny = tiny();
    for name in ["model.transformer.rotary_emb.inv_freq", "model.transformer.extra.weight"] {
        tiny.tensors.insert(name.to_owned(), (vec![2], vec![0.0; 2]));
    }
    let warnings = |tiny: &Tiny| tiny.model().warnings().to_vec();
    let unused = "model.transformer.extra.weight: stored but not used";
    assert_eq!(warnings(&tiny), [unused]);
    // A tied checkpoint may store the head too.
    let mut tied = Tiny::new(2, &json!({}));
    tied.config["weight_tying"] = json!(true);
    assert_eq!(warnings(&tied), [] as [&str; 0]);
}

#[test]
fn parameters_are_counted_once() {
    let count = |overrides: Value| {
        let tiny = Tiny::new(1, &overrides);
        let stored: usize = tiny.tensors.values().map(|(_, values)| values.len()).sum();
        assert_eq!(tiny.model().info().parameters, stored);
        stored
    };
    let tied = count(json!({"weight_tying": true}));
    assert_eq!(count(json!({})) - tied, 61 * 48);
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
        let expected = "cannot be read: expected a regular file, found another kind";
        let expected = format!("{}: {expected}", path.display());
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
    for (key, value) in
        [("max_sequence_length", 1 << 20), ("d_model", 1 << 24), ("n_heads", 1), ("n_kv_heads", 1)]
    {
        tiny.config[key] = json!(value);
    }
    let error = refusal("angles", tiny.files(Store::F32));
    assert!(error.contains("at most 268435456 rotary angles"), "{error}");
}
