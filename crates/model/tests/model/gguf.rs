//! GGUF files in the layout of llama.cpp's converter, compared with the same safetensors.

use crate::common::{Store, Tiny, load};
use crate::official::Case;
use asynclane_model::{Checkpoint, Files, LoadError, Model, WeightDtype};
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Hugging Face and llama.cpp names, without `.weight` and `.bias`.
const NAMES: &[(&str, &str)] = &[
    ("model.transformer.wte", "token_embd"),
    ("model.transformer.ln_f", "output_norm"),
    ("model.transformer.ff_out", "output"),
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("attn_norm", "attn_norm"),
    ("input_layernorm", "attn_norm"),
    ("ff_norm", "ffn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("q_proj", "attn_q"),
    ("k_proj", "attn_k"),
    ("v_proj", "attn_v"),
    ("q_norm", "attn_q_norm"),
    ("k_norm", "attn_k_norm"),
    ("attn_out", "attn_output"),
    ("o_proj", "attn_output"),
    ("ff_proj", "ffn_gate"),
    ("gate_proj", "ffn_gate"),
    ("up_proj", "ffn_up"),
    ("ff_out", "ffn_down"),
    ("down_proj", "ffn_down"),
    ("gate", "ffn_gate_inp"),
    ("gate_exps", "ffn_gate_exps"),
    ("up_exps", "ffn_up_exps"),
    ("down_exps", "ffn_down_exps"),
    ("rope_freqs", "rope_freqs"),
];

pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The tensors of a folder's safetensors in f32.
pub fn tensors(folder: &Path) -> Tensors {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |data: &[u8]| {
        let words = data.as_chunks().0.iter();
        words.map(|word| f32::from_le_bytes(*word)).collect()
    };
    let all = file.tensors().into_iter();
    all.map(|(name, of)| (name, (of.shape().to_vec(), values(of.data()))))
        .collect()
}

fn renamed(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap();
    let find = |part: &str| NAMES.iter().find(|(theirs, _)| *theirs == part).unwrap().1;
    let layers = ["model.transformer.blocks.", "model.layers."];
    match layers.iter().find_map(|layers| stem.strip_prefix(layers)) {
        None => format!("{}.{kind}", find(stem)),
        Some(rest) => {
            let (number, part) = rest.split_once('.').unwrap();
            let part = find(part.rsplit('.').next().unwrap());
            format!("blk.{number}.{part}.{kind}")
        }
    }
}

/// Row i of half j of a head becomes its row 2 i + j, because llama.cpp rotates adjacent elements.
fn interleaved(head: usize, shape: &[usize], values: &[f32]) -> Vec<f32> {
    let columns: usize = shape[1..].iter().product();
    let rows: Vec<&[f32]> = values.chunks(columns).collect();
    let mut out = vec![0.0; values.len()];
    for (row, values) in rows.iter().enumerate() {
        let (first, half, i) = (row / head * head, row % head / (head / 2), row % (head / 2));
        let to = (first + 2 * i + half) * columns;
        out[to..to + columns].copy_from_slice(values);
    }
    out
}

/// A GGUF file in its own folder, removed when dropped.
pub struct File {
    pub folder: PathBuf,
}

impl File {
    /// Writes `tensors`, with matrices in `dtype`.
    fn write(name: &str, metadata: &[(&str, Field)], tensors: &Tensors, dtype: GgmlDType) -> Self {
        Self::write_as(name, metadata, tensors, |_| dtype)
    }

    /// Writes `tensors`, with matrices in the types of their llama.cpp names.
    pub fn write_as(
        name: &str,
        metadata: &[(&str, Field)],
        tensors: &Tensors,
        dtype: impl Fn(&str) -> GgmlDType,
    ) -> Self {
        let folder = format!("asynclane-gguf-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let arch = metadata[0].1.to_string().unwrap().clone();
        let head = metadata.iter().find(|(key, _)| *key == "head").unwrap();
        let head = head.1.to_u32().unwrap() as usize;
        let stored: Vec<(String, QTensor)> = tensors
            .iter()
            .map(|(name, (shape, values))| {
                let rotated = name.contains("q_proj") || name.contains("k_proj");
                let values = match arch.as_str() {
                    "llada" | "llama" if rotated => interleaved(head, shape, values),
                    _ => values.clone(),
                };
                let kind = if shape.len() > 1 && !name.contains("mlp.gate.") {
                    dtype(&renamed(name))
                } else {
                    GgmlDType::F32
                };
                let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu).unwrap();
                (renamed(name), QTensor::quantize(&tensor, kind).unwrap())
            })
            .collect();
        let metadata: Vec<(&str, &Field)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
        let tensors: Vec<(&str, &QTensor)> = stored.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let mut file = std::fs::File::create(folder.join("model.gguf")).unwrap();
        gguf_file::write(&mut file, &metadata, &tensors).unwrap();
        Self { folder }
    }

    fn open(&self) -> Result<Model, LoadError> {
        Model::load(self.checkpoint()?.with_dtype(WeightDtype::F32))
    }

    pub fn checkpoint(&self) -> Result<Checkpoint, LoadError> {
        Checkpoint::open(&Files::folder(&self.folder))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The metadata that the converter writes for a configuration, and `head`, which only this test
/// uses.
pub fn metadata(arch: &str, of: &Value) -> Vec<(&'static str, Field)> {
    let key = |one: &str, other: &str| {
        of.get(one)
            .or(of.get(other))
            .cloned()
            .unwrap_or(json!(null))
    };
    let count = |one, other| Field::U32(key(one, other).as_u64().unwrap() as u32);
    let real = |value: &Value| Field::F32(value.as_f64().unwrap() as f32);
    let theta = of.get("rope_theta");
    let theta = theta.unwrap_or_else(|| &of["rope_parameters"]["rope_theta"]);
    let heads = count("n_heads", "num_attention_heads");
    let width = count("d_model", "hidden_size");
    let head = match of.get("head_dim").and_then(Value::as_u64) {
        Some(head) => head as u32,
        None => width.to_u32().unwrap() / heads.to_u32().unwrap(),
    };
    let num_kv_heads = key("n_kv_heads", "num_key_value_heads").as_u64();
    let num_kv_heads = num_kv_heads.map_or(heads.clone(), |num_kv_heads| {
        Field::U32(num_kv_heads as u32)
    });
    let fields = vec![
        ("embedding_length", width),
        ("attention.head_count", heads),
        ("attention.head_count_kv", num_kv_heads),
        ("block_count", count("n_layers", "num_hidden_layers")),
        (
            "feed_forward_length",
            count("mlp_hidden_size", "intermediate_size"),
        ),
        (
            "context_length",
            count("max_sequence_length", "max_position_embeddings"),
        ),
        (
            "attention.layer_norm_rms_epsilon",
            real(&of["rms_norm_eps"]),
        ),
        ("rope.freq_base", real(theta)),
        ("vocab_size", count("vocab_size", "vocab_size")),
        ("attention.key_length", Field::U32(head)),
    ];
    let mut all = vec![("general.architecture", Field::String(arch.to_owned()))];
    let full = |key: &str| &*String::leak(format!("{arch}.{key}"));
    all.extend(fields.into_iter().map(|(key, field)| (full(key), field)));
    all.push(("head", Field::U32(head)));
    for id in ["mask_token_id", "eos_token_id"] {
        let value = of.get(id).and_then(Value::as_u64);
        all.extend(value.map(|value| (full_id(id), Field::U32(value as u32))));
    }
    all
}

fn full_id(id: &str) -> &'static str {
    String::leak(format!("tokenizer.ggml.{id}"))
}

#[test]
fn logits_match_the_safetensors() {
    for name in [
        "llada-grouped",
        "dream-grouped",
        "dream-odd",
        "qwen2",
        "qwen3",
        "llama",
    ] {
        let cases = Case::all();
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let config = std::fs::read(case.folder.join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let arch = name.split('-').next().unwrap();
        let file = File::write(
            name,
            &metadata(arch, &config),
            &tensors(&case.folder),
            GgmlDType::F32,
        );
        let (model, want) = (file.open().unwrap(), case.model(WeightDtype::F32));
        assert_eq!(model.warnings(), [] as [&str; 0], "{name}");
        assert_eq!(model.info(), want.info());
        let logits = |model: &Model| model.logits(&case.tokens).unwrap();
        assert_eq!(logits(&model), logits(&want), "{name}");
    }
}

/// `tokenizer_config.json` and the ends of a text that a file with `fields` has, of 5 tokens: three
/// control tokens, a user-defined one with the name of an end, and a letter.
fn tokenizer(name: &str, pre: &str, fields: &[(&'static str, Field)]) -> (Value, Value) {
    let tiny = Tiny::new(3, &json!({}));
    let texts = |texts: &[&str]| {
        let texts = texts.iter().map(|text| Field::String((*text).to_owned()));
        Field::Array(texts.collect())
    };
    let tokens = ["<|endoftext|>", "<|im_end|>", "<other>", "<|eot_id|>", "a"];
    let kinds = [3, 3, 3, 4, 1].map(Field::I32);
    let mut all = metadata("llada", &tiny.config);
    all.extend([
        ("tokenizer.ggml.model", Field::String("gpt2".to_owned())),
        ("tokenizer.ggml.pre", Field::String(pre.to_owned())),
        ("tokenizer.ggml.tokens", texts(&tokens)),
        ("tokenizer.ggml.merges", texts(&[])),
        ("tokenizer.ggml.token_type", Field::Array(kinds.into())),
    ]);
    all.retain(|(key, _)| *key != "tokenizer.ggml.eos_token_id");
    all.extend(fields.iter().cloned());
    let file = File::write(name, &all, &tiny.tensors, GgmlDType::F32);
    let found = file.checkpoint().unwrap().tokenizer().unwrap().unwrap();
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    (read(&found.config), read(&found.generation))
}

#[test]
fn all_end_tokens_of_a_family_end_a_text() {
    let eos = ("tokenizer.ggml.eos_token_id", Field::U32(1));
    let (config, generation) = tokenizer("ends", "qwen2", &[eos]);
    assert_eq!(generation["eos_token_id"], json!([1, 0]));
    assert_eq!(config["eos_token"], "<|im_end|>");
    let eom = ("tokenizer.ggml.eom_token_id", Field::U32(2));
    let (_, generation) = tokenizer("ends-named", "qwen2", &[eom]);
    assert_eq!(generation["eos_token_id"], json!([2, 0, 1]));
}

#[test]
fn a_llama_3_file_begins_texts_with_its_bos_token_unless_it_says_otherwise() {
    let bos = || ("tokenizer.ggml.bos_token_id", Field::U32(0));
    let add = |value| ("tokenizer.ggml.add_bos_token", Field::Bool(value));
    for (pre, fields, begins) in [
        ("llama-bpe", vec![bos()], true),
        ("llama3", vec![bos()], true),
        ("llama-bpe", vec![bos(), add(false)], false),
        ("qwen2", vec![bos()], false),
        ("qwen2", vec![bos(), add(true)], true),
        ("gpt-2", vec![bos()], false),
        ("smollm", vec![bos()], false),
    ] {
        let (config, _) = tokenizer("begins", pre, &fields);
        assert_eq!(config["add_bos_token"], begins, "{pre} {fields:?}");
    }
}

#[test]
fn a_file_may_have_a_template_for_tools() {
    let text = |key: &'static str, text: &str| (key, Field::String(text.to_owned()));
    let default = text("tokenizer.chat_template", "a");
    let (config, _) = tokenizer("template", "qwen2", std::slice::from_ref(&default));
    assert_eq!(config["chat_template"], "a");
    let tools = text("tokenizer.chat_template.tool_use", "b");
    let (config, _) = tokenizer("templates", "qwen2", &[default, tools]);
    let named = |name: &str, template: &str| json!({"name": name, "template": template});
    assert_eq!(
        config["chat_template"],
        json!([named("default", "a"), named("tool_use", "b")])
    );
}

/// The experts of a layer as one tensor each for gates, ups and downs.
fn stacked(tensors: &Tensors) -> Tensors {
    let mut all = Tensors::new();
    for (name, (shape, values)) in tensors {
        let Some((layer, rest)) = name.split_once(".mlp.experts.") else {
            all.insert(name.clone(), (shape.clone(), values.clone()));
            continue;
        };
        let (number, matrix) = rest.split_once('.').unwrap();
        let matrix = matrix.strip_suffix("_proj.weight").unwrap();
        let number: usize = number.parse().unwrap();
        let name = format!("{layer}.mlp.{matrix}_exps.weight");
        let (dims, stack) = all.entry(name).or_default();
        *dims = vec![
            dims.first().copied().unwrap_or(0).max(number + 1),
            shape[0],
            shape[1],
        ];
        let size = values.len();
        stack.resize(stack.len().max((number + 1) * size), 0.0);
        stack[number * size..][..size].copy_from_slice(values);
    }
    all
}

/// As [`metadata`], with what a file says of experts.
fn metadata_of_experts(of: &Value) -> Vec<(&'static str, Field)> {
    let mut all = metadata("qwen3moe", of);
    for (key, from) in [
        ("qwen3moe.expert_count", "num_local_experts"),
        ("qwen3moe.expert_used_count", "num_experts_per_tok"),
        (
            "qwen3moe.expert_feed_forward_length",
            "moe_intermediate_size",
        ),
    ] {
        let count = of[from].as_u64().unwrap() as u32;
        all.push((key, Field::U32(count)));
    }
    all
}

#[test]
fn experts_stored_as_one_tensor_match_the_safetensors() {
    let cases = Case::all();
    let case = cases.iter().find(|case| case.name == "qwen3-moe").unwrap();
    let config = std::fs::read(case.folder.join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let metadata = metadata_of_experts(&config);
    let stacked = stacked(&tensors(&case.folder));
    let file = File::write("qwen3-moe", &metadata, &stacked, GgmlDType::F32);
    let (model, want) = (file.open().unwrap(), case.model(WeightDtype::F32));
    assert_eq!(model.warnings(), [] as [&str; 0]);
    assert_eq!(model.info(), want.info());
    let logits = |model: &Model| model.logits(&case.tokens).unwrap();
    assert_eq!(logits(&model), logits(&want));
    // One expert less than the metadata says.
    let mut less = stacked;
    let (dims, values) = less.get_mut("model.layers.1.mlp.up_exps.weight").unwrap();
    values.truncate(values.len() / dims[0] * (dims[0] - 1));
    dims[0] -= 1;
    let file = File::write("qwen3-moe-less", &metadata, &less, GgmlDType::F32);
    let error = file.open().err().expect("refused").to_string();
    assert!(error.contains("blk.1.exps.5.ffn_up.weight"), "{error}");
}

/// The experts of a quantized file keep their blocks, and read as their numbers do.
#[test]
fn experts_keep_their_blocks() {
    let config = json!({"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_hidden_layers": 1, "intermediate_size": 96, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "vocab_size": 40, "head_dim": 32,
        "eos_token_id": 1, "num_local_experts": 3, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32});
    let mut tensors = Tensors::new();
    let mut state = 9u32;
    let mut add = |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let draw = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(state >> 8) / f64::from(1 << 24) - 0.5) as f32 * 0.4
        };
        let values = match shape {
            [_] => vec![1.0; count],
            _ => (0..count).map(draw).collect(),
        };
        tensors.insert(name.to_owned(), (shape.to_vec(), values));
    };
    for (name, shape) in [
        ("model.embed_tokens.weight", &[40, 64][..]),
        ("model.norm.weight", &[64]),
        ("lm_head.weight", &[40, 64]),
        ("model.layers.0.input_layernorm.weight", &[64]),
        ("model.layers.0.post_attention_layernorm.weight", &[64]),
        ("model.layers.0.self_attn.q_proj.weight", &[64, 64]),
        ("model.layers.0.self_attn.k_proj.weight", &[32, 64]),
        ("model.layers.0.self_attn.v_proj.weight", &[32, 64]),
        ("model.layers.0.self_attn.o_proj.weight", &[64, 64]),
        ("model.layers.0.self_attn.q_norm.weight", &[32]),
        ("model.layers.0.self_attn.k_norm.weight", &[32]),
        ("model.layers.0.mlp.gate.weight", &[3, 64]),
        ("model.layers.0.mlp.gate_exps.weight", &[3, 32, 64]),
        ("model.layers.0.mlp.up_exps.weight", &[3, 32, 64]),
        ("model.layers.0.mlp.down_exps.weight", &[3, 64, 32]),
    ] {
        add(name, shape);
    }
    for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_0] {
        let name = format!("experts-{dtype:?}");
        let file = File::write(&name, &metadata_of_experts(&config), &tensors, dtype);
        let tokens: Vec<u32> = (0..24).map(|i| i * 7 % 40).collect();
        let logits = |dtype| {
            let checkpoint = file.checkpoint().unwrap().with_dtype(dtype);
            Model::load(checkpoint).unwrap().logits(&tokens).unwrap()
        };
        let (kept, expanded) = (logits(WeightDtype::Blocks), logits(WeightDtype::F32));
        let most = expanded.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (a, b) in kept.iter().zip(&expanded) {
            assert!((a - b).abs() < 0.05 * most, "{dtype:?}: {a} {b} of {most}");
        }
        assert_ne!(kept, expanded, "products round their inputs");
    }
}

/// A quantized file has the same logits as its dequantized values in f32.
#[test]
fn quantized_matrices_are_dequantized() {
    let sizes = json!({"d_model": 64, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 96,
        "embedding_size": 64, "vocab_size": 64});
    let tiny = Tiny::new(3, &sizes);
    for dtype in [
        GgmlDType::F16,
        GgmlDType::Q8_0,
        GgmlDType::Q5_0,
        GgmlDType::Q4_0,
    ] {
        let name = format!("{dtype:?}");
        let file = File::write(
            &name,
            &metadata("llada", &tiny.config),
            &tiny.tensors,
            dtype,
        );
        let mut rounded = tiny.clone();
        for (shape, values) in rounded.tensors.values_mut().filter(|(s, _)| s.len() == 2) {
            let tensor = Tensor::from_vec(values.clone(), shape.as_slice(), &Device::Cpu).unwrap();
            let stored = QTensor::quantize(&tensor, dtype).unwrap();
            let back = stored
                .dequantize(&Device::Cpu)
                .unwrap()
                .flatten_all()
                .unwrap();
            *values = back.to_vec1().unwrap();
        }
        let tokens: Vec<u32> = (0..40).map(|i| i * 13 % 61).collect();
        let logits = |model: Model| model.logits(&tokens).unwrap();
        let want = load(rounded.files(Store::F32)).unwrap();
        assert_eq!(logits(file.open().unwrap()), logits(want), "{dtype:?}");
    }
}

#[test]
fn unsupported_and_corrupt_files_are_refused() {
    let tiny = Tiny::new(3, &json!({}));
    let good = metadata("llada", &tiny.config);
    let refusal = |name: &str, metadata: &[(&str, Field)], tensors: &Tensors| {
        let file = File::write(name, metadata, tensors, GgmlDType::F32);
        let error = file.open().err().expect("refused").to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let mut other = good.clone();
    other[0].1 = Field::String("mamba".to_owned());
    assert_eq!(
        refusal("other", &other, &tiny.tensors),
        "model.gguf: general.architecture: expected one of llada, dream, qwen2, qwen3, qwen3moe, llama, \
         found \"mamba\""
    );
    let mut less = good.clone();
    less.retain(|(key, _)| *key != "llada.block_count");
    assert_eq!(
        refusal("less", &less, &tiny.tensors),
        "model.gguf: llada.block_count: expected a positive whole number, found nothing"
    );
    let mut unaligned = good.clone();
    unaligned.push(("general.alignment", Field::U32(0)));
    assert_eq!(
        refusal("unaligned", &unaligned, &tiny.tensors),
        "model.gguf: general.alignment: expected a power of two, found 0"
    );
    let mut wide = good.clone();
    wide.retain(|(key, _)| *key != "llada.embedding_length");
    wide.push(("llada.embedding_length", Field::U32(u32::MAX - 1)));
    assert_eq!(
        refusal("wide", &wide, &tiny.tensors),
        "model.gguf: d_model: expected a positive whole number of at most 16777216, found \
         4294967294"
    );
    let mut tensors = tiny.tensors.clone();
    tensors.remove("model.transformer.blocks.1.up_proj.weight");
    let message = refusal("gone", &good, &tensors);
    assert!(
        message.contains("model.gguf") && message.contains("blk.1.ffn_up.weight"),
        "{message}"
    );
    let mut tensors = tiny.tensors.clone();
    tensors.get_mut("model.transformer.ln_f.weight").unwrap().1[3] = f32::NAN;
    let message = refusal("nan", &good, &tensors);
    assert!(
        message.contains("output_norm.weight") && message.contains("NaN"),
        "{message}"
    );
    let file = File::write("cut", &good, &tiny.tensors, GgmlDType::F32);
    let path = file.folder.join("model.gguf");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 3, 40, bytes.len() / 2, bytes.len() - 5] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let message = file.open().err().expect("refused").to_string();
        assert!(
            message.starts_with("model.gguf: corrupt"),
            "{length}: {message}"
        );
    }
    std::fs::write(file.folder.join("second.gguf"), b"").unwrap();
    let message = file.open().err().expect("refused").to_string();
    assert!(message.contains("model.gguf, second.gguf"), "{message}");
}
