//! `--model FILE.gguf` without any other file: geometry, weights, tokenizer and chat template come
//! from the file.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{Server, run, stderr};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::folder;

/// An autoregressive checkpoint with 47 tokens.
const CHECKPOINT: &str = "../crates/model/tests/model/fixtures/families/qwen2";
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }} {% endfor %}";

/// Hugging Face and llama.cpp names of a layer's tensors.
const LAYER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

fn renamed(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap();
    let other = match stem.strip_prefix("model.layers.") {
        Some(rest) => {
            let (number, part) = rest.split_once('.').unwrap();
            let (_, part) = LAYER.iter().find(|(theirs, _)| *theirs == part).unwrap();
            format!("blk.{number}.{part}")
        }
        None => match stem {
            "model.embed_tokens" => "token_embd",
            "model.norm" => "output_norm",
            _ => "output",
        }
        .to_owned(),
    };
    format!("{other}.{kind}")
}

/// A metadata value.
enum Field {
    Number(u32),
    Real(f32),
    Text(String),
    Texts(Vec<String>),
    Numbers(Vec<u32>),
}

/// The bytes of a GGUF file, version 3.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.0.extend((length as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
    }

    fn field(&mut self, key: &str, field: &Field) {
        self.text(key);
        match field {
            Field::Number(number) => [4, *number].into_iter().for_each(|n| self.number(n)),
            Field::Real(real) => [6, real.to_bits()].into_iter().for_each(|n| self.number(n)),
            Field::Text(text) => {
                self.number(8);
                self.text(text);
            }
            Field::Texts(texts) => {
                [9, 8].into_iter().for_each(|n| self.number(n));
                self.length(texts.len());
                texts.iter().for_each(|text| self.text(text));
            }
            Field::Numbers(numbers) => {
                [9, 4].into_iter().for_each(|n| self.number(n));
                self.length(numbers.len());
                numbers.iter().for_each(|number| self.number(*number));
            }
        }
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(32), 0);
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

fn metadata(config: &Value, pre: &str) -> Vec<(String, Field)> {
    let count = |key: &str| Field::Number(config[key].as_u64().unwrap() as u32);
    let kinds = (0..47).map(|id| if id < 3 { 3 } else { 1 });
    let merges = ["a b", "c d", "\u{120} a"].map(str::to_owned);
    let text = |text: &str| Field::Text(text.to_owned());
    let all = [
        ("general.architecture", text("qwen2")),
        ("qwen2.embedding_length", count("hidden_size")),
        ("qwen2.attention.head_count", count("num_attention_heads")),
        (
            "qwen2.attention.head_count_kv",
            count("num_key_value_heads"),
        ),
        ("qwen2.block_count", count("num_hidden_layers")),
        ("qwen2.feed_forward_length", count("intermediate_size")),
        ("qwen2.context_length", count("max_position_embeddings")),
        ("qwen2.attention.layer_norm_rms_epsilon", Field::Real(1e-6)),
        ("qwen2.rope.freq_base", Field::Real(1e6)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text(pre)),
        ("tokenizer.ggml.tokens", Field::Texts(tokens())),
        ("tokenizer.ggml.token_type", Field::Numbers(kinds.collect())),
        ("tokenizer.ggml.merges", Field::Texts(merges.into())),
        ("tokenizer.ggml.eos_token_id", Field::Number(1)),
        ("tokenizer.chat_template", text(TEMPLATE)),
    ];
    all.map(|(key, field)| (key.to_owned(), field)).into()
}

/// Writes the checkpoint as one file with a tokenizer that splits as `pre` says.
pub(crate) fn write(test: &str, pre: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKPOINT);
    let config = std::fs::read(source.join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let weights = std::fs::read(source.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap().tensors();
    let (fields, mut file) = (metadata(&config, pre), Writer::default());
    file.0.extend(b"GGUF");
    file.number(3);
    file.length(tensors.len());
    file.length(fields.len());
    fields
        .iter()
        .for_each(|(key, field)| file.field(key, field));
    let mut offset = 0;
    for (name, tensor) in &tensors {
        file.text(&renamed(name));
        file.number(tensor.shape().len() as u32);
        // The fastest dimension comes first.
        tensor
            .shape()
            .iter()
            .rev()
            .for_each(|size| file.length(*size));
        file.number(0);
        file.length(offset);
        offset += tensor.data().len().next_multiple_of(32);
    }
    file.align();
    for (_, tensor) in &tensors {
        file.0.extend(tensor.data());
        file.align();
    }
    let path = folder(test).join("letters.gguf");
    std::fs::write(&path, file.0).unwrap();
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
    let want = "letters.gguf: tokenizer.ggml.pre: expected qwen2, llama-bpe, llama3, llama-v3, \
                smollm, gpt-2, or tokenizer.json beside the file, found \"tekken\"";
    assert!(said.contains(want), "{said}");
}
