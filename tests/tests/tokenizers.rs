//! Tokenizers in GGUF files have the ids of the published form, `tokenizer.json`.

use std::path::Path;

use candle_core::Device;
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use model::{Checkpoint, Files};
use serde_json::Value;
use text::{Tokenizer, TokenizerFiles};

const TEXTS: usize = 2_000;

fn read(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tokenizers");
    std::fs::read(folder.join(name)).expect("the tokenizer is there")
}

fn loaded(tokenizer: Vec<u8>) -> Tokenizer {
    let files = TokenizerFiles { tokenizer: Some(tokenizer), ..TokenizerFiles::default() };
    Tokenizer::new(&files).expect("a tokenizer")
}

/// The tokenizer that a GGUF file with these tokens and merges has.
fn from_gguf(json: &[u8], model: &str, pre: Option<&str>) -> Tokenizer {
    let tokenizer: Value = serde_json::from_slice(json).expect("JSON");
    let vocab = tokenizer["model"]["vocab"].as_object().expect("a vocabulary");
    let mut tokens = vec![String::new(); vocab.len()];
    for (token, id) in vocab {
        tokens[id.as_u64().expect("an id") as usize] = token.clone();
    }
    let added = tokenizer["added_tokens"].as_array().expect("a list");
    let is_added = |token: &str| added.iter().any(|entry| entry["content"] == token);
    let kind = |token: &String| match () {
        () if is_added(token) => 3,
        () if token.starts_with("<0x") && token.ends_with('>') => 6,
        () => 1,
    };
    let merge = |pair: &Value| {
        let pair = pair.as_array().expect("a pair");
        let half = |index: usize| pair[index].as_str().expect("text").to_owned();
        Field::String(format!("{} {}", half(0), half(1)))
    };
    let merges = tokenizer["model"]["merges"].as_array().expect("a list").iter().map(merge);
    let count = |value| Field::U32(value);
    let mut fields = vec![
        ("general.architecture", Field::String("qwen2".to_owned())),
        ("qwen2.embedding_length", count(8)),
        ("qwen2.attention.head_count", count(2)),
        ("qwen2.attention.head_count_kv", count(2)),
        ("qwen2.block_count", count(1)),
        ("qwen2.feed_forward_length", count(8)),
        ("qwen2.context_length", count(64)),
        ("tokenizer.ggml.model", Field::String(model.to_owned())),
        (
            "tokenizer.ggml.token_type",
            Field::Array(tokens.iter().map(kind).map(Field::I32).collect()),
        ),
        ("tokenizer.ggml.merges", Field::Array(merges.collect())),
        ("tokenizer.ggml.tokens", Field::Array(tokens.into_iter().map(Field::String).collect())),
    ];
    fields.extend(pre.map(|pre| ("tokenizer.ggml.pre", Field::String(pre.to_owned()))));
    let fields: Vec<(&str, &Field)> = fields.iter().map(|(key, field)| (*key, field)).collect();
    let table = candle_core::Tensor::zeros((8, 8), candle_core::DType::F32, &Device::Cpu);
    let table = QTensor::quantize(&table.expect("a table"), GgmlDType::F32).expect("it is stored");
    let name = format!("asynclane-tokenizer-{model}-{}.gguf", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::File::create(&path).expect("a file");
    gguf_file::write(&mut file, &fields, &[("token_embd.weight", &table)]).expect("it is written");
    let opened = Checkpoint::open(&Files::gguf_file(&path)).expect("a checkpoint");
    let found = opened.tokenizer().expect("it is read").expect("a tokenizer");
    let _ = std::fs::remove_file(&path);
    loaded(found.tokenizer)
}

/// Pseudorandom texts of words, numbers, signs, white space and other scripts.
fn texts() -> Vec<String> {
    const PARTS: [&str; 28] = [
        "the",
        " model",
        " writes",
        "Don't",
        " WE'VE",
        "it's",
        "12",
        " 345",
        "6",
        "print(x)",
        "==",
        " {",
        "};",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "  ",
        "   ",
        " ",
        "Straße",
        " été",
        "中文字",
        "привет",
        " 👍🏽",
        "\u{301}",
        "<|turn>",
        "<|mask|>",
    ];
    let mut state = 1u64;
    let mut below = |limit: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    (0..TEXTS).map(|_| (0..1 + below(24)).map(|_| PARTS[below(PARTS.len())]).collect()).collect()
}

#[test]
fn ids_are_those_of_the_published_form() {
    for (name, model, pre) in
        [("gemma.json", "gemma4", None), ("bailing.json", "gpt2", Some("bailingmoe2"))]
    {
        let json = read(name);
        let (file, published) = (from_gguf(&json, model, pre), loaded(json));
        let mut several = 0;
        for text in texts() {
            let ids =
                |tokenizer: &Tokenizer| tokenizer.encode(&text, false).expect("it is encoded");
            let (got, want) = (ids(&file), ids(&published));
            assert_eq!(got, want, "{name}: {text:?}");
            several += usize::from(want.len() > 3);
        }
        assert!(several > TEXTS / 2, "{name}: {several}");
    }
}
