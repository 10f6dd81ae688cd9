//! Loading from folders and from split files, and the errors of invalid files.

use std::path::Path;

use asynclane_text::{Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{DEMO, DEMO_PAIR, byte_alphabet, bytes, config, metaspace_json};

#[test]
fn a_folder_loads_like_its_files() {
    let tokenizer = Tokenizer::from_folder(Path::new(DEMO)).unwrap();
    let text = "Mia has 12 eggs.";
    assert_eq!(
        tokenizer.encode(text, true).unwrap(),
        DEMO_PAIR.ours.encode(text, true).unwrap()
    );
    assert!(tokenizer.chat_template().is_ok());
}

fn fault(files: TokenizerFiles) -> String {
    let message = Tokenizer::new(&files).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn errors_name_the_file_the_key_and_the_value() {
    let demo = || std::fs::read(format!("{DEMO}/tokenizer.json")).ok();
    let with_config = |config: Value| {
        let config = Some(bytes(&config));
        fault(TokenizerFiles {
            tokenizer: demo(),
            config,
            ..Default::default()
        })
    };
    let missing = Tokenizer::from_folder(Path::new("/nonexistent"))
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("tokenizer.json: the file is missing"),
        "{missing}"
    );
    assert_eq!(
        with_config(json!({"eos_token": 7})),
        "tokenizer_config.json: eos_token: expected a token's text, found 7"
    );
    assert_eq!(
        with_config(json!({"add_bos_token": "yes"})),
        "tokenizer_config.json: add_bos_token: expected true or false, found \"yes\""
    );
    assert_eq!(
        with_config(json!({"added_tokens_decoder": {"3": {"content": "a"}}})),
        "tokenizer_config.json: added_tokens_decoder.3: expected the id of \"a\" in \
         tokenizer.json, found 70"
    );
    let generation_config = Some(bytes(&json!({"eos_token_id": [1, -1]})));
    assert_eq!(
        fault(TokenizerFiles {
            tokenizer: demo(),
            generation_config,
            ..Default::default()
        }),
        "generation_config.json: eos_token_id: expected a token id or a list of them, found -1"
    );
    let broken = fault(TokenizerFiles {
        tokenizer: Some(b"{".to_vec()),
        ..Default::default()
    });
    assert!(broken.starts_with("tokenizer.json: EOF"), "{broken}");
}

/// A pipe without a writer would wait for ever, and a device has no end.
#[test]
fn only_regular_files_are_read() {
    let folder = std::env::temp_dir().join(format!("asynclane-special-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tokenizer.json");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()));
    let refused = || Tokenizer::from_folder(&folder).unwrap_err().to_string();
    let expected = format!(
        "{}: expected a regular file, found another kind",
        path.display()
    );
    assert_eq!(refused(), expected);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert_eq!(refused(), expected);
    std::fs::remove_file(&path).unwrap();
    // No byte of it takes space.
    std::fs::File::create(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert!(refused().contains("expected at most 268435456 bytes, found 1099511627776"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The error of a tokenizer whose `section` is `stage`.
fn with_stage(section: &str, stage: Value) -> String {
    let mut tokenizer = metaspace_json(&json!({"type": "Fuse"}));
    tokenizer[section] = stage;
    fault(TokenizerFiles {
        tokenizer: Some(bytes(&tokenizer)),
        ..Default::default()
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn stages_that_fail_or_grow_without_bound_are_refused() {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let grow = || replace(json!({"String": "a"}), "aaaa");
    let sequence = |stages: Vec<Value>| json!({"type": "Sequence", "normalizers": stages});
    let deep = (0..60).fold(json!({"type": "NFC"}), |stage, _| sequence(vec![stage]));
    let template = |single: Value, special: Value| {
        json!({
            "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special,
        })
    };
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
    let ids = |count: usize| json!({"<s>": {"id": "<s>", "ids": vec![1; count], "tokens": vec!["<s>"; count]}});
    let strip = |start: u64| json!({"type": "Strip", "content": " ", "start": start, "stop": 0});
    let attacks = [
        (
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8A"}),
        ),
        (
            "normalizer",
            json!({"precompiled_charsmap": "BAAAAP////8A"}),
        ),
        (
            "normalizer",
            replace(json!({"String": "a"}), &"b".repeat(1 << 20)),
        ),
        (
            "normalizer",
            replace(json!({"String": ""}), &"b".repeat(1 << 20)),
        ),
        ("normalizer", replace(json!({"Regex": ".?"}), "bbbbbbbbb")),
        ("normalizer", sequence(vec![grow(), grow()])),
        ("normalizer", sequence(vec![json!({"type": "NFC"}); 100])),
        ("normalizer", deep),
        (
            "normalizer",
            json!({"type": "Prepend", "prepend": "x".repeat(100)}),
        ),
        (
            "post_processor",
            template(json!([text("A"), text("A")]), json!({})),
        ),
        ("post_processor", template(json!([text("B")]), json!({}))),
        ("post_processor", template(json!([token]), json!({}))),
        ("post_processor", template(json!([token]), ids(1_000))),
        (
            "post_processor",
            template(json!(vec![token.clone(); 1_000]), ids(1)),
        ),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        ("decoder", strip(u64::MAX)),
        (
            "decoder",
            replace(json!({"String": "a"}), &"b".repeat(1 << 20)),
        ),
    ];
    for (section, stage) in attacks {
        let error = with_stage(section, stage);
        let begin = format!("tokenizer.json: {section}");
        assert!(
            error.starts_with(&begin) && error.contains("expected"),
            "{error}"
        );
    }
    let mut tokenizer = metaspace_json(&Value::Null);
    tokenizer["model"]["continuing_subword_prefix"] = json!("x".repeat(1 << 20));
    let tokenizer = Some(bytes(&tokenizer));
    let error = fault(TokenizerFiles {
        tokenizer,
        ..Default::default()
    });
    assert!(
        error.contains("model.continuing_subword_prefix: expected at most 64 bytes"),
        "{error}"
    );
    // One text between two known tokens, as in published checkpoints.
    let mut tokenizer = metaspace_json(&json!({"type": "Fuse"}));
    tokenizer["post_processor"] = template(json!([token, text("A"), token]), ids(1));
    let tokenizer = Some(bytes(&tokenizer));
    let tokenizer = Tokenizer::new(&TokenizerFiles {
        tokenizer,
        ..Default::default()
    })
    .unwrap();
    let ids = tokenizer.encode("a", true).unwrap();
    assert!(
        ids.len() > 2 && ids[0] == 1 && ids[ids.len() - 1] == 1,
        "{ids:?}"
    );
}

#[test]
fn unsupported_decoders_and_too_large_ids_are_refused() {
    let load = |tokenizer: Value| {
        fault(TokenizerFiles {
            tokenizer: Some(bytes(&tokenizer)),
            ..Default::default()
        })
    };
    let ctc = json!({
        "type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true,
    });
    let message = load(metaspace_json(&ctc));
    assert!(
        message.starts_with("tokenizer.json: decoder: expected ByteLevel"),
        "{message}"
    );
    assert!(message.contains("CTC"), "{message}");
    let mut large = metaspace_json(&Value::Null);
    large["model"]["vocab"]["zz"] = json!(u32::MAX);
    let expected = "tokenizer.json: model.vocab: expected token ids below 2^24, found 4294967295";
    assert_eq!(load(large), expected);
}

/// vocab.json and merges.txt of a byte-level vocabulary with two merges.
fn split_files(class: &str) -> TokenizerFiles {
    let mut tokens: Vec<String> = byte_alphabet().iter().map(char::to_string).collect();
    tokens.extend(["12", "Ġa"].map(str::to_owned));
    let vocab: serde_json::Map<String, Value> =
        tokens.into_iter().zip((0..).map(Value::from)).collect();
    let special = |content: &str| json!({"content": content, "special": true});
    let config = json!({
        "tokenizer_class": class, "mask_token": "<|mask|>",
        "added_tokens_decoder": {"259": special("<|mask|>"), "258": special("<|endoftext|>")},
    });
    TokenizerFiles {
        config: Some(bytes(&config)),
        vocab: Some(bytes(&Value::Object(vocab))),
        merges: Some(b"#version: 0.2\n1 2\n\xc4\xa0 a\n".to_vec()),
        ..Default::default()
    }
}

#[test]
fn split_files_use_the_pre_tokenization_of_their_family() {
    let gpt2 = Tokenizer::new(&split_files("GPT2Tokenizer")).unwrap();
    let dream = Tokenizer::new(&split_files("DreamTokenizer")).unwrap();
    let text = "12 a\u{301}<|mask|>";
    // GPT-2 keeps digits together; the Qwen2 family splits between them and composes accents.
    assert_eq!(
        gpt2.encode(text, false).unwrap(),
        [256, 257, 0xcc, 0x81, 259]
    );
    assert_eq!(
        dream.encode(text, false).unwrap(),
        [0x31, 0x32, 0x20, 0xc3, 0xa1, 259]
    );
    assert_eq!(gpt2.decode(&[256, 257, 259], false), "12 a<|mask|>");
    assert_eq!(dream.mask_id(), Some(259));
    let message = fault(split_files("LlamaTokenizer"));
    assert!(
        message.starts_with("tokenizer_config.json: tokenizer_class: "),
        "{message}"
    );
}

proptest! {
    #![proptest_config(config(300))]

    /// Loading a truncated or changed file succeeds or returns an error, and never panics.
    #[test]
    fn damaged_files_do_no_harm(
        at in 0_usize..1_000_000,
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut tokenizer = bytes(&metaspace_json(&json!({"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]})));
        let at = at % tokenizer.len();
        if cut {
            tokenizer.truncate(at);
        } else {
            tokenizer[at] = byte;
        }
        let files = TokenizerFiles { tokenizer: Some(tokenizer), ..Default::default() };
        if let Ok(tokenizer) = Tokenizer::new(&files) {
            let _ = tokenizer.decode(&(0..300).collect::<Vec<_>>(), false);
        }
    }
}
