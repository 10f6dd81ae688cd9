//! Loading from folders and from split files, and the errors of invalid files.

use std::path::Path;

use asynclane_text::{TextError, Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{
    DEMO, DEMO_PAIR, alone, byte_alphabet, bytes, config, demo_files, metaspace_json,
};

#[test]
fn a_folder_loads_like_its_files() {
    let tokenizer = Tokenizer::from_folder(Path::new(DEMO)).unwrap();
    let ids = |tokenizer: &Tokenizer| tokenizer.encode("Mia has 12 eggs.", true).unwrap();
    assert_eq!(ids(&tokenizer), ids(&DEMO_PAIR.ours));
    assert!(tokenizer.chat_template().is_ok());
}

fn fault(loaded: Result<Tokenizer, TextError>) -> String {
    let message = loaded.unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn errors_name_the_file_the_key_and_the_value() {
    let missing = fault(Tokenizer::from_folder(Path::new("/nonexistent")));
    let expected = "tokenizer.json: the file is missing";
    assert!(missing.starts_with(expected), "{missing}");
    for (config, expected) in [
        (json!({"eos_token": 7}), "eos_token: expected a token's text, found 7"),
        (json!({"add_bos_token": "yes"}), "add_bos_token: expected true or false, found \"yes\""),
        (
            json!({"added_tokens_decoder": {"3": {"content": "a"}}}),
            "added_tokens_decoder.3: expected the id of \"a\" in tokenizer.json, found 70",
        ),
    ] {
        let error = fault(Tokenizer::new(&demo_files(&config)));
        assert_eq!(error, format!("tokenizer_config.json: {expected}"));
    }
    let generation_config = Some(bytes(&json!({"eos_token_id": [1, -1]})));
    let error =
        fault(Tokenizer::new(&TokenizerFiles { generation_config, ..demo_files(&json!({})) }));
    let expected = "eos_token_id: expected a token id or a list of them, found -1";
    assert_eq!(error, format!("generation_config.json: {expected}"));
    let broken = fault(Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(b"{".to_vec()),
        ..Default::default()
    }));
    assert!(broken.starts_with("tokenizer.json: EOF"), "{broken}");
}

/// A pipe without a writer would wait for ever, and a device has no end.
#[test]
fn only_regular_files_that_are_here_are_read() {
    let folder = std::env::temp_dir().join(format!("asynclane-special-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tokenizer.json");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()));
    let refused = || fault(Tokenizer::from_folder(&folder));
    let expected = "expected a regular file, found another kind";
    let expected = format!("{}: {expected}", path.display());
    assert_eq!(refused(), expected);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert_eq!(refused(), expected);
    std::fs::remove_file(&path).unwrap();
    // No byte of it takes space.
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    assert!(refused().contains("expected at most 268435456 bytes, found 1099511627776"));
    std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n").unwrap();
    let expected =
        "expected the file, found a pointer of Git LFS: run `git lfs pull` in its folder";
    assert_eq!(refused(), format!("{}: {expected}", path.display()));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn stages_that_fail_or_grow_without_bound_are_refused() {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let long = "b".repeat(1 << 20);
    let [a, nothing] = ["a", ""].map(|text| json!({ "String": text }));
    let grow = replace(a.clone(), "aaaa");
    let sequence = |stages: Vec<Value>| json!({"type": "Sequence", "normalizers": stages});
    let nfc = json!({"type": "NFC"});
    let deep = (0..60).fold(nfc.clone(), |stage, _| sequence(vec![stage]));
    let map = "BAAAAP////8A";
    let template = |single: Value, special: Value| {
        json!({"type": "TemplateProcessing", "single": single, "pair": [],
            "special_tokens": special})
    };
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
    let ids = |count: usize| json!({"<s>": {"id": "<s>", "ids": vec![1; count], "tokens": vec!["<s>"; count]}});
    let normalizers = vec![
        json!({"type": "Precompiled", "precompiled_charsmap": map}),
        json!({ "precompiled_charsmap": map }),
        replace(a.clone(), &long),
        replace(nothing, &long),
        replace(json!({"Regex": ".?"}), "bbbbbbbbb"),
        sequence(vec![grow; 2]),
        sequence(vec![nfc; 100]),
        deep,
        json!({"type": "Prepend", "prepend": "x".repeat(100)}),
    ];
    let post_processors = vec![
        template(json!([text("A"), text("A")]), json!({})),
        template(json!([text("B")]), json!({})),
        template(json!([token]), json!({})),
        template(json!([token]), ids(1_000)),
        template(json!(vec![token.clone(); 1_000]), ids(1)),
    ];
    let decoders = vec![
        json!({"type": "Strip", "content": " ", "start": u64::MAX, "stop": 0}),
        replace(a, &long),
    ];
    let fixed = vec![json!({"type": "FixedLength", "length": 0})];
    let whole = metaspace_json(&json!({"type": "Fuse"}));
    for (section, stages) in [
        ("normalizer", normalizers),
        ("post_processor", post_processors),
        ("pre_tokenizer", fixed),
        ("decoder", decoders),
    ] {
        for stage in stages {
            let mut tokenizer = whole.clone();
            tokenizer[section] = stage;
            let error = fault(alone(&tokenizer));
            let named = error.starts_with(&format!("tokenizer.json: {section}"));
            assert!(named && error.contains("expected"), "{error}");
        }
    }
    let mut tokenizer = metaspace_json(&Value::Null);
    tokenizer["model"]["continuing_subword_prefix"] = json!("x".repeat(1 << 20));
    let error = fault(alone(&tokenizer));
    let expected = "model.continuing_subword_prefix: expected at most 64 bytes";
    assert!(error.contains(expected), "{error}");
    // One text between two known tokens, as in published checkpoints.
    let mut tokenizer = whole;
    tokenizer["post_processor"] = template(json!([token, text("A"), token]), ids(1));
    let ids = alone(&tokenizer).unwrap().encode("a", true).unwrap();
    let framed = ids.len() > 2 && ids[0] == 1 && ids[ids.len() - 1] == 1;
    assert!(framed, "{ids:?}");
}

#[test]
fn unsupported_decoders_and_too_large_ids_are_refused() {
    let ctc = json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|",
        "cleanup": true});
    let message = fault(alone(&metaspace_json(&ctc)));
    let expected = "tokenizer.json: decoder: expected ByteLevel";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("CTC"), "{message}");
    let mut large = metaspace_json(&Value::Null);
    large["model"]["vocab"]["zz"] = json!(u32::MAX);
    let expected = "tokenizer.json: model.vocab: expected token ids below 2^24, found 4294967295";
    assert_eq!(fault(alone(&large)), expected);
}

/// vocab.json and merges.txt of a byte-level vocabulary with two merges.
fn split_files(class: &str) -> TokenizerFiles {
    let mut tokens: Vec<String> = byte_alphabet().iter().map(char::to_string).collect();
    tokens.extend(["12", "Ġa"].map(str::to_owned));
    let vocab: serde_json::Map<String, Value> =
        tokens.into_iter().zip((0..).map(Value::from)).collect();
    let special = |content: &str| json!({"content": content, "special": true});
    let config = json!({"tokenizer_class": class, "mask_token": "<|mask|>",
        "added_tokens_decoder": {"259": special("<|mask|>"), "258": special("<|endoftext|>")}});
    TokenizerFiles {
        config: Some(bytes(&config)),
        vocab: Some(bytes(&Value::Object(vocab))),
        merges: Some(b"#version: 0.2\n1 2\n\xc4\xa0 a\n".to_vec()),
        ..Default::default()
    }
}

#[test]
fn split_files_use_the_pre_tokenization_of_their_family() {
    let [gpt2, dream] = ["GPT2Tokenizer", "DreamTokenizer"]
        .map(|class| Tokenizer::new(&split_files(class)).unwrap());
    // GPT-2 keeps digits together; the Qwen2 family splits between them and composes accents.
    for (tokenizer, expected) in
        [(&gpt2, &[256, 257, 0xcc, 0x81, 259][..]), (&dream, &[0x31, 0x32, 0x20, 0xc3, 0xa1, 259])]
    {
        let ids = tokenizer.encode("12 a\u{301}<|mask|>", false);
        assert_eq!(ids.unwrap(), expected);
    }
    assert_eq!(gpt2.decode(&[256, 257, 259], false), "12 a<|mask|>");
    assert_eq!(dream.mask_id(), Some(259));
    let message = fault(Tokenizer::new(&split_files("LlamaTokenizer")));
    let expected = "tokenizer_config.json: tokenizer_class: ";
    assert!(message.starts_with(expected), "{message}");
}

proptest! {
    #![proptest_config(config(300))]

    /// Loading a truncated or changed file succeeds or returns an error, and never panics.
    #[test]
    fn damaged_files_do_no_harm(
        index in 0_usize..1_000_000,
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut tokenizer = bytes(&metaspace_json(&json!({"type": "Sequence",
            "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})));
        let index = index % tokenizer.len();
        if cut {
            tokenizer.truncate(index);
        } else {
            tokenizer[index] = byte;
        }
        let files = TokenizerFiles { tokenizer: Some(tokenizer), ..Default::default() };
        if let Ok(tokenizer) = Tokenizer::new(&files) {
            let _ = tokenizer.decode(&(0..300).collect::<Vec<_>>(), false);
        }
    }
}
