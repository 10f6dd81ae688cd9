//! GGUF files in the layout of llama.cpp's converter, compared with the same safetensors.

use crate::common::{Noise, Store, Tiny, load, refusal};
use crate::gguf_files::{File, Tensors, metadata, tensors};
use crate::official::{Case, error};
use asynclane_model::{Model, TokenizerJson, WeightDtype};
use candle_core::quantized::gguf_file::Value as Field;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};

/// Asserts that a file has the info and the logits of a case's safetensors.
fn assert_same(file: &File, case: &Case) {
    let (model, want) = (file.open().unwrap(), case.model(WeightDtype::F32));
    assert_eq!(model.warnings(), [] as [&str; 0], "{}", case.name);
    assert_eq!(model.info(), want.info());
    let logits = |model: &Model| model.logits(&case.tokens).unwrap();
    assert_eq!(logits(&model), logits(&want), "{}", case.name);
}

#[test]
fn logits_match_the_safetensors() {
    for name in ["llada-grouped", "dream-grouped", "dream-odd", "qwen2", "qwen3", "llama"] {
        let case = Case::named(name);
        let metadata = metadata(name.split('-').next().unwrap(), &case.config());
        let tensors = tensors(&case.folder);
        let file = File::write(name, &metadata, &tensors, GgmlDType::F32);
        assert_same(&file, &case);
    }
}

#[test]
fn heads_without_groups_have_keys_and_values_of_their_own() {
    let tiny = Tiny::new(3, &json!({}));
    let mut fields = metadata("llada", &tiny.config);
    fields.retain(|(key, _)| *key != "llada.attention.head_count_kv");
    let logits = |model: Model| model.logits(&[3, 1, 4, 1, 5]).unwrap();
    let file = File::write("no-groups", &fields, &tiny.tensors, GgmlDType::F32);
    let want = load(tiny.files(Store::F32)).unwrap();
    assert_eq!(logits(file.open().unwrap()), logits(want));
    // A list of a number for each layer is none of the forms that are read.
    let list = Field::Array(vec![Field::U32(4); 2]);
    fields.push(("llada.attention.head_count_kv", list));
    let error = refusal(File::write("list", &fields, &tiny.tensors, GgmlDType::F32).open());
    let expected = "llada.attention.head_count_kv: expected a positive whole number";
    assert!(error.contains(expected), "{error}");
}

/// `tokenizer_config.json` and the ends of a text that a file with `fields` has, of 5 tokens: three
/// control tokens, a user-defined one with the name of an end, and a letter.
fn tokenizer(name: &str, pre: &str, fields: &[(&'static str, Field)]) -> (Value, Value) {
    let found = tokenizer_files(name, pre, fields);
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    (read(&found.config), read(&found.generation))
}

/// The files of the same tokenizer.
fn tokenizer_files(name: &str, pre: &str, fields: &[(&'static str, Field)]) -> TokenizerJson {
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
    file.checkpoint().unwrap().tokenizer().unwrap().unwrap()
}

#[test]
fn names_of_one_split_give_one_tokenizer() {
    for names in [
        &["qwen2", "deepseek-r1-qwen", "kormo", "megrez"][..],
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "midm-2.0", "pixtral"],
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &["gpt-2", "gigachat", "mellum", "a.x-4.0"],
    ] {
        let first = tokenizer_files("splits", names[0], &[]);
        for name in names {
            assert_eq!(tokenizer_files("splits", name, &[]), first, "{name}");
        }
    }
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
    let expected = json!([named("default", "a"), named("tool_use", "b")]);
    assert_eq!(config["chat_template"], expected);
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
        *dims = vec![dims.first().copied().unwrap_or(0).max(number + 1), shape[0], shape[1]];
        let size = values.len();
        stack.resize(stack.len().max((number + 1) * size), 0.0);
        stack[number * size..][..size].copy_from_slice(values);
    }
    all
}

/// As [`metadata`], with what a file says of experts.
fn metadata_of_experts(arch: &str, config: &Value) -> Vec<(&'static str, Field)> {
    let mut all = metadata(arch, config);
    let number = |value: &Value| Field::U32(value.as_u64().unwrap() as u32);
    let count = config.get("num_local_experts").unwrap_or(&config["num_experts"]);
    for (key, value) in [
        ("expert_count", count),
        ("expert_used_count", &config["num_experts_per_tok"]),
        ("expert_feed_forward_length", &config["moe_intermediate_size"]),
    ] {
        all.push((&*String::leak(format!("{arch}.{key}")), number(value)));
    }
    all
}

#[test]
fn experts_stored_as_one_tensor_match_the_safetensors() {
    let case = Case::named("rnd1");
    let metadata = metadata_of_experts("rnd1", &case.config());
    let experts = stacked(&tensors(&case.folder));
    assert_same(&File::write("rnd1", &metadata, &experts, GgmlDType::F32), &case);
    let case = Case::named("qwen3-moe");
    let metadata = metadata_of_experts("qwen3moe", &case.config());
    let stacked = stacked(&tensors(&case.folder));
    assert_same(&File::write("qwen3-moe", &metadata, &stacked, GgmlDType::F32), &case);
    // One expert less than the metadata says.
    let mut less = stacked;
    let (dims, values) = less.get_mut("model.layers.1.mlp.up_exps.weight").unwrap();
    values.truncate(values.len() / dims[0] * (dims[0] - 1));
    dims[0] -= 1;
    let file = File::write("qwen3-moe-less", &metadata, &less, GgmlDType::F32);
    let error = refusal(file.open());
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
    let mut noise = Noise(9);
    let mut tensors = Tensors::new();
    let mut add = |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| match shape {
            [_] => 1.0,
            _ => 0.2 * noise.next(),
        });
        let values = values.collect();
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
        let file = File::write(&name, &metadata_of_experts("qwen3moe", &config), &tensors, dtype);
        let tokens: Vec<u32> = (0..24).map(|i| i * 7 % 40).collect();
        let logits = |dtype| {
            let checkpoint = file.checkpoint().unwrap().with_dtype(dtype);
            Model::load(checkpoint).unwrap().logits(&tokens).unwrap()
        };
        let (kept, expanded) = (logits(WeightDtype::Blocks), logits(WeightDtype::F32));
        let off = error(&kept, &expanded, 40);
        // Products round their inputs.
        assert!(off > 0.0 && off < 0.1, "{dtype:?}: {off}");
    }
}

/// A quantized file has the same logits as its dequantized values in f32.
#[test]
fn quantized_matrices_are_dequantized() {
    let sizes = json!({"d_model": 64, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 96,
        "embedding_size": 64, "vocab_size": 64});
    let tiny = Tiny::new(3, &sizes);
    for dtype in [GgmlDType::F16, GgmlDType::Q8_0, GgmlDType::Q5_0, GgmlDType::Q4_0] {
        let (name, metadata) = (format!("{dtype:?}"), metadata("llada", &tiny.config));
        let file = File::write(&name, &metadata, &tiny.tensors, dtype);
        let mut rounded = tiny.clone();
        for (shape, values) in rounded.tensors.values_mut().filter(|(s, _)| s.len() == 2) {
            let tensor = Tensor::from_vec(values.clone(), shape.as_slice(), &Device::Cpu).unwrap();
            let stored = QTensor::quantize(&tensor, dtype).unwrap();
            let back = stored.dequantize(&Device::Cpu);
            let back = back.and_then(|tensor| tensor.flatten_all());
            *values = back.unwrap().to_vec1().unwrap();
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
    let write = |name: &str, metadata: &[(&str, Field)], tensors: &Tensors| {
        File::write(name, metadata, tensors, GgmlDType::F32)
    };
    let number = |key, number| (key, Some(Field::U32(number)));
    let mamba = Field::String("mamba".to_owned());
    for ((key, value), expected) in [
        (
            ("general.architecture", Some(mamba)),
            "general.architecture: expected one of llada, dream, qwen2, qwen3, qwen3moe, rnd1, llama, \
             llada-moe, llada2, diffusion-gemma, found \"mamba\"",
        ),
        (
            ("llada.block_count", None),
            "llada.block_count: expected a positive whole number, found nothing",
        ),
        (number("general.alignment", 0), "general.alignment: expected a power of two, found 0"),
        (
            number("llada.embedding_length", u32::MAX - 1),
            "d_model: expected a positive whole number of at most 16777216, found 4294967294",
        ),
    ] {
        let mut fields = good.clone();
        match fields.iter().position(|(other, _)| *other == key) {
            Some(index) => drop(fields.splice(index..=index, value.map(|value| (key, value)))),
            None => fields.extend(value.map(|value| (key, value))),
        }
        let error = refusal(write("fields", &fields, &tiny.tensors).open());
        assert_eq!(error, format!("model.gguf: {expected}"));
    }
    let mut gone = tiny.tensors.clone();
    gone.remove("model.transformer.blocks.1.up_proj.weight");
    let mut nan = tiny.tensors.clone();
    nan.get_mut("model.transformer.ln_f.weight").unwrap().1[3] = f32::NAN;
    for (tensors, parts) in
        [(gone, ["model.gguf", "blk.1.ffn_up.weight"]), (nan, ["output_norm.weight", "NaN"])]
    {
        let error = refusal(write("tensors", &good, &tensors).open());
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let file = write("cut", &good, &tiny.tensors);
    let path = file.folder.join("model.gguf");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 3, 40, bytes.len() / 2, bytes.len() - 5] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = refusal(file.open());
        assert!(error.starts_with("model.gguf: corrupt"), "{length}: {error}");
    }
    std::fs::write(file.folder.join("second.gguf"), b"").unwrap();
    let error = refusal(file.open());
    assert!(error.contains("model.gguf, second.gguf"), "{error}");
}
