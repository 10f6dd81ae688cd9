//! `--model FILE.gguf` without any other file: geometry, weights, tokenizer and chat template come
//! from the file.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{Server, run, stderr};
use candle_core::Device;
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use serde_json::{Value, json};

use crate::folder;

/// An autoregressive checkpoint with 47 tokens.
const CHECKPOINT: &str = "../crates/model/tests/model/fixtures/families/qwen2";
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }} {% endfor %}";

/// Hugging Face and llama.cpp names of tensors.
const NAMES: &str = "
model.embed_tokens token_embd
model.norm output_norm
lm_head output
input_layernorm attn_norm
self_attn.q_proj attn_q
self_attn.k_proj attn_k
self_attn.v_proj attn_v
self_attn.o_proj attn_output
post_attention_layernorm ffn_norm
mlp.gate_proj ffn_gate
mlp.up_proj ffn_up
mlp.down_proj ffn_down
";

fn renamed(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap();
    let find = |part: &str| {
        let mut pairs = NAMES.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(theirs, _)| *theirs == part).unwrap().1
    };
    match stem.strip_prefix("model.layers.") {
        Some(rest) => {
            let (number, part) = rest.split_once('.').unwrap();
            format!("blk.{number}.{}.{kind}", find(part))
        }
        None => format!("{}.{kind}", find(stem)),
    }
}

/// `a` to `z`, a space and some pairs of letters behind three control tokens; the rest is unused.
fn tokens() -> Vec<String> {
    let control = ["<pad>", "<end>", "<turn>"].map(str::to_owned);
    let letters = ('a'..='z').map(String::from);
    let others = ["\u{120}", "ab", "cd", "\u{120}a"].map(str::to_owned);
    let known: Vec<String> = control.into_iter().chain(letters).chain(others).collect();
    let unused = (known.len()..47).map(|id| format!("[unused{id}]"));
    known.iter().cloned().chain(unused).collect()
}

fn metadata(config: &Value, pre: &str) -> [(&'static str, Field); 16] {
    let count = |key: &str| Field::U32(config[key].as_u64().unwrap() as u32);
    let kinds = (0..47).map(|id| Field::U32(if id < 3 { 3 } else { 1 }));
    let text = |text: &str| Field::String(text.to_owned());
    let merges = ["a b", "c d", "\u{120} a"].map(text);
    let kv_heads = count("num_key_value_heads");
    let tokens = tokens().into_iter().map(Field::String).collect();
    [
        ("general.architecture", text("qwen2")),
        ("qwen2.embedding_length", count("hidden_size")),
        ("qwen2.attention.head_count", count("num_attention_heads")),
        ("qwen2.attention.head_count_kv", kv_heads),
        ("qwen2.block_count", count("num_hidden_layers")),
        ("qwen2.feed_forward_length", count("intermediate_size")),
        ("qwen2.context_length", count("max_position_embeddings")),
        ("qwen2.attention.layer_norm_rms_epsilon", Field::F32(1e-6)),
        ("qwen2.rope.freq_base", Field::F32(1e6)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text(pre)),
        ("tokenizer.ggml.tokens", Field::Array(tokens)),
        ("tokenizer.ggml.token_type", Field::Array(kinds.collect())),
        ("tokenizer.ggml.merges", Field::Array(merges.into())),
        ("tokenizer.ggml.eos_token_id", Field::U32(1)),
        ("tokenizer.chat_template", text(TEMPLATE)),
    ]
}

/// Writes the checkpoint as one file with a tokenizer that splits as `pre` says.
pub(crate) fn write(test: &str, pre: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKPOINT);
    let config = std::fs::read(source.join("config.json")).unwrap();
    let fields = metadata(&serde_json::from_slice(&config).unwrap(), pre);
    let fields: Vec<(&str, &Field)> = fields.iter().map(|(key, field)| (*key, field)).collect();
    let tensors = candle_core::safetensors::load(source.join("model.safetensors"), &Device::Cpu);
    let tensors = tensors.unwrap().into_iter().map(|(name, tensor)| {
        let stored = QTensor::quantize(&tensor, GgmlDType::F32).unwrap();
        (renamed(&name), stored)
    });
    let tensors: Vec<(String, QTensor)> = tensors.collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let path = folder(test).join("letters.gguf");
    let mut file = std::fs::File::create(&path).unwrap();
    gguf_file::write(&mut file, &fields, &tensors).unwrap();
    path
}

#[test]
fn a_gguf_file_is_served_alone() {
    let path = write("gguf-alone", "gpt-2");
    let server = Server::start(&["--model", path.to_str().unwrap()]);
    let tokenize = |fields: Value| {
        let answer = server.client().post("/tokenize", &fields);
        answer.json()["tokens"].clone()
    };
    // "cab ab" is "c", "ab", " ", "ab": the first merge of the list comes first.
    let plain = json!({"model": "letters", "prompt": "cab ab<end>"});
    assert_eq!(tokenize(plain), json!([5, 30, 29, 30, 1]));
    let messages = json!([{"role": "user", "content": "cab"}]);
    let chat = json!({"model": "letters", "messages": messages});
    assert_eq!(tokenize(chat), json!([5, 30, 29]));
    let body = json!({"model": "letters", "messages": messages, "max_tokens": 12,
        "temperature": 0, "ignore_eos": true, "return_token_ids": true});
    let answer = server.client().post("/v1/chat/completions", &body).json();
    assert_eq!(answer["usage"]["completion_tokens"], 12, "{answer}");
    assert_eq!(answer["usage"]["diffusion"]["forwards"], 12, "{answer}");
}

#[test]
fn an_unknown_tokenizer_is_refused() {
    let path = write("gguf-unknown", "tekken");
    let output = run(&["generate", "a", "--model", path.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(!output.status.success());
    let want = "letters.gguf: tokenizer.ggml.pre: expected qwen2, deepseek-r1-qwen, kormo, megrez, \
                llama-bpe, llama3, llama-v3, falcon3, midm-2.0, pixtral, bailingmoe, bailingmoe2, \
                llada-moe, smollm, gpt-2, gigachat, mellum, a.x-4.0, \
                or tokenizer.json beside the file, found \"tekken\"";
    assert!(said.contains(want), "{said}");
}
