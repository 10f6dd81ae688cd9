//! Encoding: decoding returns every text, including special tokens.

use asynclane_text::{Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{
    BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, byte_alphabet, bytes, config, texts,
};

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn every_text_comes_back(text in prop_oneof![texts(), any::<String>()]) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL] {
            let ids = pair.ours.encode(&text, false).unwrap();
            prop_assert_eq!(&pair.ours.decode(&ids, false), &text);
            let theirs = pair.theirs.encode(text.as_str(), false).unwrap();
            prop_assert_eq!(ids.as_slice(), theirs.get_ids());
        }
    }

    /// Like Llama's, its normalizer turns `▁` into a blank and adds a blank after special tokens.
    #[test]
    fn every_text_without_these_comes_back_from_metaspace(
        text in prop_oneof![texts(), any::<String>()],
    ) {
        let text = text.replace(['<', '▁'], "");
        let tokenizer = &METASPACE[LLAMA].ours;
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert_eq!(&tokenizer.decode(&ids, false), &text);
    }

    /// The concatenated bytes of the tokens equal the text's bytes.
    #[test]
    fn token_bytes_join_to_the_text(text in texts()) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL] {
            let ids = pair.ours.encode(&text, false).unwrap();
            let bytes = ids.iter().flat_map(|id| pair.ours.token_bytes(*id).unwrap());
            let joined: Vec<u8> = bytes.collect();
            prop_assert_eq!(joined, text.as_bytes());
        }
    }

    /// No text is longer than its tokens can be.
    #[test]
    fn a_text_has_as_many_tokens_as_its_bytes_need(text in prop_oneof![texts(), any::<String>()]) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL, &METASPACE[LLAMA]] {
            let longest = pair.ours.longest_token_bytes().unwrap();
            let tokens = pair.ours.encode(&text, false).unwrap().len();
            prop_assert!(text.len() <= tokens * longest, "{} > {tokens} * {longest}", text.len());
        }
    }
}

/// A byte-level tokenizer with other stages: a normalizer, a pre-tokenizer, added tokens.
fn with_stages(normalizer: Value, pre_tokenizer: Value, added: Value) -> Tokenizer {
    let vocab: serde_json::Map<String, Value> = byte_alphabet()
        .iter()
        .zip(0..256)
        .map(|(c, id)| (c.to_string(), json!(id)))
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
    let pre_tokenizer = json!({"type": "Sequence", "pretokenizers": [pre_tokenizer, byte_level]});
    let tokenizer = json!({
        "version": "1.0", "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(bytes(&tokenizer)),
        ..Default::default()
    })
    .unwrap()
}

#[test]
fn the_longest_token_is_known_where_no_stage_drops_text() {
    let byte_level =
        || json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
    let longest = |normalizer, pre_tokenizer, added| {
        with_stages(normalizer, pre_tokenizer, added).longest_token_bytes()
    };
    let split = |behavior: &str| json!({"type": "Split", "pattern": {"Regex": " +"}, "behavior": behavior, "invert": false});
    let token = |lstrip: bool| {
        json!([{
            "id": 256, "content": "<|eight|>", "single_word": false, "lstrip": lstrip,
            "rstrip": false, "normalized": false, "special": true,
        }])
    };
    let replace =
        |content: &str| json!({"type": "Replace", "pattern": {"String": "ab"}, "content": content});
    assert_eq!(longest(Value::Null, byte_level(), json!([])), Some(1));
    assert_eq!(
        longest(json!({"type": "NFC"}), byte_level(), json!([])),
        Some(3)
    );
    assert_eq!(longest(Value::Null, byte_level(), token(false)), Some(9));
    assert_eq!(longest(Value::Null, byte_level(), token(true)), None);
    assert_eq!(longest(Value::Null, split("Isolated"), json!([])), Some(1));
    assert_eq!(longest(Value::Null, split("Removed"), json!([])), None);
    assert_eq!(longest(replace("cd"), byte_level(), json!([])), Some(1));
    assert_eq!(longest(replace("c"), byte_level(), json!([])), None);
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    assert_eq!(longest(strip, byte_level(), json!([])), None);
    // Signs of three bytes that compose to a character of one byte.
    let composed = with_stages(json!({"type": "NFC"}), byte_level(), json!([]));
    for text in ["\u{212a}", "\u{1fef}"] {
        let tokens = composed.encode(text, false).unwrap().len();
        assert_eq!(text.len(), 3 * tokens);
    }
}

#[test]
fn special_tokens_in_a_text_become_their_ids() {
    let tokenizer = &DEMO_PAIR.ours;
    let ids = tokenizer
        .encode("<|startoftext|>a<|mdm_mask|>", true)
        .unwrap();
    assert_eq!(ids, [0, 70, 5]);
    assert_eq!(
        tokenizer.decode(&ids, false),
        "<|startoftext|>a<|mdm_mask|>"
    );
    assert_eq!(tokenizer.decode(&ids, true), "a");
    assert_eq!(tokenizer.encode("", true).unwrap(), [0_u32; 0]);
    assert_eq!(tokenizer.decode(&[], false), "");
}

#[test]
fn the_demo_knows_its_special_tokens() {
    let tokenizer = &DEMO_PAIR.ours;
    assert_eq!(
        (tokenizer.bos_token(), tokenizer.bos_id()),
        (Some("<|startoftext|>"), Some(0))
    );
    assert_eq!(
        (tokenizer.eos_token(), tokenizer.eos_id()),
        (Some("<|endoftext|>"), Some(1))
    );
    assert_eq!(
        (tokenizer.pad_token(), tokenizer.pad_id()),
        (Some("<|endoftext|>"), Some(1))
    );
    assert_eq!(
        (tokenizer.mask_token(), tokenizer.mask_id()),
        (Some("<|mdm_mask|>"), Some(5))
    );
    assert_eq!(tokenizer.eos_ids(), [1]);
    assert_eq!(tokenizer.vocab_size(), 842);
    assert_eq!(
        (0..900)
            .filter(|id| tokenizer.is_special(*id))
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(tokenizer.token_text(900), "");
    assert_eq!(tokenizer.token_bytes(900), None);
}

/// A tokenizer with the 256 byte tokens and `config`.
fn configured(config: Value) -> Tokenizer {
    let vocab: serde_json::Map<String, Value> = byte_alphabet()
        .iter()
        .zip(0..256)
        .map(|(c, id)| (c.to_string(), json!(id)))
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": byte_level, "decoder": byte_level,
        "truncation": {
            "max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right",
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let files = TokenizerFiles {
        tokenizer: Some(bytes(&tokenizer)),
        config: Some(bytes(&config)),
        generation_config: Some(bytes(
            &json!({"eos_token_id": [256, 65], "pad_token_id": 66}),
        )),
        ..Default::default()
    };
    Tokenizer::new(&files).unwrap()
}

#[test]
fn the_config_adds_tokens_and_puts_them_around_a_text() {
    let token = |content: &str| json!({"content": content, "special": true});
    let tokenizer = configured(json!({
        "added_tokens_decoder": {"257": token("<b>"), "256": token("<e>")},
        "bos_token": "<b>", "eos_token": {"content": "<e>"}, "add_bos_token": true,
        "additional_special_tokens": ["Z"],
    }));
    assert_eq!(
        tokenizer.encode("ab<e>c", true).unwrap(),
        [257, 97, 98, 256, 99]
    );
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [97, 98]);
    assert_eq!(tokenizer.eos_ids(), [256, 65]);
    assert_eq!(
        (tokenizer.pad_token(), tokenizer.pad_id()),
        (Some("B"), Some(66))
    );
    assert_eq!(tokenizer.decode(&[257, 97, 90, 256], true), "a");
    assert_eq!(tokenizer.mask_id(), None);
}

#[test]
fn a_mask_named_later_is_special_and_hidden() {
    let mut tokenizer = configured(json!({}));
    tokenizer.set_mask_id(90);
    assert_eq!(
        (tokenizer.mask_token(), tokenizer.mask_id()),
        (Some("Z"), Some(90))
    );
    assert!(tokenizer.is_special(90));
    assert_eq!(tokenizer.decode(&[97, 90], true), "a");
}
