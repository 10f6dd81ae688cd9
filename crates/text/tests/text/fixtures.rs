//! Tokenizers for tests: the demo's, a byte-level one, and several with metaspace tokens.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use asynclane_text::{TextError, Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

/// The goldens' checkpoint, the demo model that they were made with.
pub const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/checkpoint");

static DEMO_JSON: LazyLock<Vec<u8>> = LazyLock::new(|| demo_file("tokenizer.json"));

fn demo_file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{DEMO}/{name}")).unwrap()
}

/// The demo's tokenizer.json with this configuration.
pub fn demo_files(config: &Value) -> TokenizerFiles {
    TokenizerFiles {
        tokenizer: Some(DEMO_JSON.clone()),
        config: Some(bytes(config)),
        ..TokenizerFiles::default()
    }
}

/// The demo's tokenizer with another chat template.
pub fn with_template(template: impl Into<Value>) -> Result<Tokenizer, TextError> {
    let config = json!({"chat_template": template.into(), "bos_token": "<|startoftext|>"});
    Tokenizer::new(&demo_files(&config))
}

/// A tokenizer of a tokenizer.json alone.
pub fn alone(tokenizer: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(bytes(tokenizer)),
        ..TokenizerFiles::default()
    })
}

/// A turn as the demo's chat template writes it.
pub fn turn(role: &str, text: &str) -> String {
    format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>")
}

/// A tokenizer of this crate and an independent one that reads the same tokenizer.json.
pub struct Pair {
    pub ours: Arc<Tokenizer>,
    pub theirs: tokenizers::Tokenizer,
}

impl Pair {
    fn new(tokenizer: Vec<u8>, config: Option<Vec<u8>>) -> Self {
        let theirs = tokenizers::Tokenizer::from_bytes(&tokenizer).unwrap();
        let files = TokenizerFiles { tokenizer: Some(tokenizer), config, ..Default::default() };
        Self { ours: Arc::new(Tokenizer::new(&files).unwrap()), theirs }
    }
}

/// The demo's tokenizer.
pub static DEMO_PAIR: LazyLock<Pair> =
    LazyLock::new(|| Pair::new(DEMO_JSON.clone(), Some(demo_file("tokenizer_config.json"))));

/// Byte-level BPE with tokens that split emoji and CJK characters at unusual places.
pub static BYTE_LEVEL: LazyLock<Pair> =
    LazyLock::new(|| Pair::new(bytes(&byte_level_json()), Some(bytes(&roles()))));

/// Metaspace and byte-fallback tokens with each of [`decoders`].
pub static METASPACE: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let pair = |decoder: &Value| Pair::new(bytes(&metaspace_json(decoder)), Some(bytes(&roles())));
    decoders().iter().map(pair).collect()
});

pub fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(20_260_608),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn roles() -> Value {
    json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true},
        "mask_token": "<mask>", "pad_token": null})
}

fn special(id: usize, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": special})
}

/// The 256 characters that stand for bytes 0..=255 in byte-level vocabularies.
pub fn byte_alphabet() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    let mut stand_in = |byte: u32| {
        let code = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        char::from_u32(code).unwrap()
    };
    (0..=255).map(&mut stand_in).collect()
}

/// A stage that stands for bytes by characters.
pub fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

/// A byte-level tokenizer.json with these tokens behind those of the bytes.
pub fn byte_level_with(merges: &[(&str, &str)], added: &[Value]) -> Value {
    let mut tokens: Vec<String> = byte_alphabet().iter().map(char::to_string).collect();
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let vocab: BTreeMap<&String, usize> = tokens.iter().zip(0..).collect();
    let merges = merges.iter().map(|(left, right)| format!("{left} {right}"));
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level(), "post_processor": null,
        "decoder": byte_level(), "model": {"type": "BPE", "vocab": vocab,
        "merges": merges.collect::<Vec<_>>()}})
}

fn byte_level_json() -> Value {
    // An emoji's first three bytes, the last two bytes of another, bytes of a Chinese full stop,
    // and ordinary words.
    let merges = "ð Ł|ðŁ ĺ|Ĳ Ģ|ã Ģ|Ġ t|h e|Ġt he|Ġ .|. Ċ|) .|1 2|Ġ 5|: Ċ";
    let merges: Vec<_> = merges.split('|').map(|pair| pair.split_once(' ').unwrap()).collect();
    let added = ["<s>", "</s>", "<mask>", "\n\n", "<é>"].into_iter().enumerate();
    let first = 256 + merges.len();
    let added: Vec<Value> = added.map(|(i, text)| special(first + i, text, i < 3)).collect();
    byte_level_with(&merges, &added)
}

/// Decoders common with metaspace vocabularies, and unusual ones.
pub fn decoders() -> Vec<Value> {
    let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let fallback = json!({"type": "ByteFallback"});
    let fuse = json!({"type": "Fuse"});
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
        "split": false});
    let sequence = |decoders: &[&Value]| json!({"type": "Sequence", "decoders": decoders});
    vec![
        sequence(&[&replace, &fallback, &fuse, &strip]),
        sequence(&[&replace, &fallback, &fuse]),
        sequence(&[&fallback, &metaspace]),
        sequence(&[&metaspace, &fallback, &fuse]),
        sequence(&[&fallback, &replace, &strip, &fuse]),
        metaspace,
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        Value::Null,
    ]
}

/// Index of the decoder of Llama checkpoints.
pub const LLAMA: usize = 0;

/// A vocabulary with metaspace and byte-fallback tokens, and `decoder`.
pub fn metaspace_json(decoder: &Value) -> Value {
    let mut tokens = ["<unk>", "<s>", "</s>", "<mask>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let texts = "▁ t h e a . , 1 é 。 😀 \u{fffd} ##";
    tokens.extend(texts.split(' ').map(str::to_owned));
    let merges = ["▁ t", "h e", "▁t he", "▁ ▁", "▁ .", "## he"];
    tokens.extend(merges.map(|pair| pair.replace(' ', "")));
    let vocab: BTreeMap<&String, usize> = tokens.iter().zip(0..).collect();
    let added: Vec<Value> = (0..4).map(|id| special(id, &tokens[id], true)).collect();
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "pre_tokenizer": null,
        "post_processor": null, "decoder": decoder, "model": {"type": "BPE", "unk_token": "<unk>",
        "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges}})
}

/// Texts with characters of every UTF-8 length, blanks and special tokens.
pub fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-z .,:()0-9]{0,6}",
        2 => "\\PC{0,3}",
        1 => Just("😀👩‍👩‍👧".to_owned()),
        1 => Just("。é\u{fffd}".to_owned()),
        1 => Just(" \n\n  \t".to_owned()),
        1 => Just("<mask></s>".to_owned()),
    ];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

/// Token ids of `pair`: encoded texts mixed with arbitrary ids, some without a token.
pub fn ids(pair: &'static Pair) -> impl Strategy<Value = Vec<u32>> {
    let size = u32::try_from(pair.ours.vocab_size()).unwrap();
    let part = prop_oneof![
        texts().prop_map(|text| pair.ours.encode(&text, false).unwrap()),
        prop::collection::vec(0..size + 3, 0..6),
    ];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

/// `items` split into pieces of the given sizes; the last piece holds the rest.
pub fn cut<'a, T>(items: &'a [T], sizes: &[usize]) -> Vec<&'a [T]> {
    let mut rest = items;
    let mut pieces = Vec::new();
    for size in sizes {
        let (piece, right) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = right;
    }
    pieces.push(rest);
    pieces
}
